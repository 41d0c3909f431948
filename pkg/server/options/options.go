// Package options turns command-line flags into a server.Config. It checks everything that can be checked before
// anything starts, and reports each fault in one line.
package options

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	logsapi "k8s.io/component-base/logs/api/v1"
	utilsnet "k8s.io/utils/net"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/webhooks"
)

// Options are the values of the flags of `start`. Settings are used as they are.
type Options struct {
	server.Settings

	RootDirectory    string
	ShardName        string
	ReplicaName      string
	AdvertiseAddress string
	ExternalHostname string
	ShardBaseURL     string
	// ConversionWebhookNetworks are where the conversion webhooks of custom resources may be, for
	// webhooks.ParseNetworks.
	ConversionWebhookNetworks []string
	// EmbeddedEtcd is the etcd in this process if Etcd has no servers. Its directory is below RootDirectory.
	EmbeddedEtcd etcd.Config
	// DefaultServiceAccounts says whether namespaces get the service account default, and the ConfigMap
	// kube-root-ca.crt.
	DefaultServiceAccounts bool
	Election               ElectionOptions
	// FailurePolicies are of the form <policy> or <controller>=<policy>.
	FailurePolicies []string
	Logs            *logsapi.LoggingConfiguration
}

// New returns the options with their default values.
func New() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	serving.BindPort = 6443
	serving.Required = true
	serving.ServerCert.CertDirectory = ""
	serving.CipherSuites = defaultCipherSuites()
	return &Options{
		Settings: server.Settings{
			Capacity:        clusters.DefaultCapacity,
			Serving:         serving,
			Limits:          edge.DefaultLimits(),
			ServiceAccounts: identity.ServiceAccounts{MaxTokenLifetime: identity.DefaultMaxTokenLifetime},
			TokenWebhook:    authentication.Webhook{Version: "v1", TTL: 2 * time.Minute},
			EtcdPrefix:      "/registry",
			Detect:          detect.DefaultConfig(),
			Fencing:         edge.FencingEnforce,
			Audit:           genericoptions.NewAuditOptions(),
			Tracing:         genericoptions.NewTracingOptions(),
		},
		RootDirectory:             ".regent",
		ShardName:                 defaultShardName,
		ConversionWebhookNetworks: []string{webhooks.Public},
		EmbeddedEtcd:              etcd.Config{Quota: etcd.DefaultQuota},
		DefaultServiceAccounts:    true,
		Election:                  defaultElection(),
		Logs:                      logsapi.NewLoggingConfiguration(),
	}
}

// defaultCipherSuites returns Go's cipher suites for TLS 1.2 without those in CBC mode, which do not authenticate what
// they encrypt.
func defaultCipherSuites() []string {
	var names []string
	for _, suite := range tls.CipherSuites() {
		if slices.Contains(suite.SupportedVersions, tls.VersionTLS12) && !strings.Contains(suite.Name, "_CBC_") {
			names = append(names, suite.Name)
		}
	}
	return names
}

// Config returns the configuration of a server that runs the controllers of registry. The options must be valid.
func (o *Options) Config(registry *controllers.Registry) (cfg server.Config, err error) {
	cfg = server.Config{Settings: o.Settings, Replica: o.ReplicaName, Registry: registry, EnableLeaderElection: o.Election.Enabled}
	cfg.ServiceAccounts.WithoutDefaults = !o.DefaultServiceAccounts
	if cfg.RootDirectory, err = filepath.Abs(o.RootDirectory); err != nil {
		return cfg, fmt.Errorf("cannot find --root-directory %q: %w", o.RootDirectory, err)
	}
	if cfg.Advertise, err = o.advertised(); err != nil {
		return cfg, err
	}
	cfg.Host = cmp.Or(o.ExternalHostname, cfg.Advertise.String())
	cfg.BaseURL = cmp.Or(o.ShardBaseURL, "https://"+net.JoinHostPort(cfg.Host, strconv.Itoa(o.Serving.BindPort)))
	cfg.FixedBaseURL = o.ShardBaseURL != ""
	if cfg.Policies, err = o.policies(registry); err != nil {
		return cfg, err
	}
	if cfg.Election, err = o.Election.config(); err != nil {
		return cfg, err
	}
	if cfg.Shard, cfg.Membership, err = o.joins(); err != nil {
		return cfg, err
	}
	if cfg.ConversionWebhooks, err = webhooks.ParseNetworks(o.ConversionWebhookNetworks); err != nil {
		return cfg, fmt.Errorf("--conversion-webhook-networks: %w", err)
	}
	if len(o.Etcd.ServerList) == 0 {
		embedded := o.EmbeddedEtcd
		embedded.Directory = filepath.Join(cfg.RootDirectory, "etcd")
		cfg.EmbeddedEtcd = &embedded
	}
	return cfg, nil
}

// defaultShardName is the name of a shard that is alone.
const defaultShardName = "root"

// joins returns the name of the shard, and the membership with which it joins an installation, if it does.
func (o *Options) joins() (shard string, membership *pki.Membership, err error) {
	if o.MembershipFile == "" {
		return o.ShardName, nil, nil
	}
	membership, err = pki.ReadMembership(o.MembershipFile)
	if err != nil {
		return "", nil, fmt.Errorf("--membership: %w", err)
	}
	if membership.Member.Kind != pki.KindShard {
		return "", nil, fmt.Errorf("--membership: %s is for a %s, and this is a shard", o.MembershipFile, membership.Member.Kind)
	}
	if o.ShardName != defaultShardName && o.ShardName != membership.Member.Name {
		return "", nil, fmt.Errorf("--membership: %s is for shard %s, and --shard-name is %s: leave --shard-name out, or have a membership made for that name",
			o.MembershipFile, membership.Member.Name, o.ShardName)
	}
	return membership.Member.Name, membership, nil
}

// policies returns what happens when one of registry's controllers fails.
func (o *Options) policies(registry *controllers.Registry) (controllers.Policies, error) {
	policies := controllers.Policies{Controllers: map[string]controllers.Policy{}}
	for _, given := range o.FailurePolicies {
		controller, policy, forOne := strings.Cut(given, "=")
		if _, twice := policies.Controllers[controller]; twice || !forOne && policies.Default != "" {
			return controllers.Policies{}, fmt.Errorf("--controller-failure-policy: %s comes after another policy for the same: give one", given)
		}
		if !forOne {
			policies.Default = controllers.Policy(given)
			continue
		}
		policies.Controllers[controller] = controllers.Policy(policy)
	}
	if err := policies.Validate(registry.Names()); err != nil {
		return controllers.Policies{}, errors.New("--controller-failure-policy: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return policies, nil
}

// advertised returns the address that peers dial: the given one, else the one that the server listens on, else the
// host's.
func (o *Options) advertised() (net.IP, error) {
	if o.AdvertiseAddress != "" {
		return utilsnet.ParseIPSloppy(o.AdvertiseAddress), nil
	}
	if !o.Serving.BindAddress.IsUnspecified() {
		// Upstream would take the host's default interface in place of a loopback address. Nobody listens
		// there.
		return o.Serving.BindAddress, nil
	}
	ip, err := o.Serving.DefaultExternalAddress()
	if err != nil {
		return nil, fmt.Errorf("cannot find an address of this host that peers can dial, give --advertise-address: %w", err)
	}
	return ip, nil
}
