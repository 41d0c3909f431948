// Package options turns command-line flags into a server.Config. It checks everything that can be checked before
// anything starts, and reports each fault in one line.
package options

import (
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
	"k8s.io/apiserver/pkg/storage/storagebackend"
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

// Options are the values of the flags of `start`.
type Options struct {
	RootDirectory    string
	ShardName        string
	Membership       string
	ShardCapacity    int64
	AdvertiseAddress string
	ExternalHostname string
	ShardBaseURL     string
	ProbePort        int
	Profiling        bool
	Limits           edge.Limits
	// ConversionWebhookNetworks are where the conversion webhooks of custom resources may be, for
	// webhooks.ParseNetworks.
	ConversionWebhookNetworks []string
	ShutdownDelay             time.Duration

	Serving      *genericoptions.SecureServingOptions
	Etcd         EtcdOptions
	ClientCAFile string
	TokenFile    string
	// ServiceAccounts says how tokens of service accounts are made and checked.
	ServiceAccounts identity.ServiceAccounts
	// DefaultServiceAccounts says whether namespaces get the service account default, and the ConfigMap
	// kube-root-ca.crt.
	DefaultServiceAccounts bool
	// AuthenticationConfigFile names a file with an AuthenticationConfiguration. Empty: there are no issuers of
	// tokens.
	AuthenticationConfigFile string
	TokenWebhook             authentication.Webhook
	// AuthorizationConfigFile names a file with an AuthorizationConfiguration. Empty: no webhook is asked.
	AuthorizationConfigFile string
	// EncryptionConfigFile names a file with an EncryptionConfiguration. Empty: objects are stored unencrypted.
	EncryptionConfigFile string
	Election             ElectionOptions
	Detect               detect.Config
	// Fencing is one of edge.FencingValues.
	Fencing string
	// FailurePolicies are of the form <policy> or <controller>=<policy>.
	FailurePolicies []string
	Audit           *genericoptions.AuditOptions
	Tracing         *genericoptions.TracingOptions
	Logs            *logsapi.LoggingConfiguration
}

// EtcdOptions say which etcd to use: an embedded one if Transport.ServerList is empty.
type EtcdOptions struct {
	Transport storagebackend.TransportConfig
	Prefix    string
	// EmbeddedClientPort and EmbeddedQuota apply to the embedded etcd.
	EmbeddedClientPort int
	EmbeddedQuota      int64
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
		RootDirectory:             ".regent",
		ShardName:                 defaultShardName,
		ShardCapacity:             clusters.DefaultCapacity,
		Limits:                    edge.DefaultLimits(),
		ServiceAccounts:           identity.ServiceAccounts{MaxTokenLifetime: identity.DefaultMaxTokenLifetime},
		DefaultServiceAccounts:    true,
		ConversionWebhookNetworks: []string{webhooks.Public},
		Serving:                   serving,
		Etcd:                      EtcdOptions{Prefix: "/registry", EmbeddedQuota: etcd.DefaultQuota},
		Election:                  defaultElection(),
		Detect:                    detect.DefaultConfig(),
		Fencing:                   string(edge.FencingEnforce),
		TokenWebhook:              authentication.Webhook{Version: "v1", TTL: 2 * time.Minute},
		Audit:                     genericoptions.NewAuditOptions(),
		Tracing:                   genericoptions.NewTracingOptions(),
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
func (o *Options) Config(registry *controllers.Registry) (server.Config, error) {
	root, err := filepath.Abs(o.RootDirectory)
	if err != nil {
		return server.Config{}, fmt.Errorf("cannot find --root-directory %q: %w", o.RootDirectory, err)
	}
	advertised, err := o.advertised()
	if err != nil {
		return server.Config{}, err
	}
	host := o.ExternalHostname
	if host == "" {
		host = advertised.String()
	}
	policies, err := o.policies(registry)
	if err != nil {
		return server.Config{}, err
	}
	stands, err := o.Election.config()
	if err != nil {
		return server.Config{}, err
	}
	shard, membership, err := o.joins()
	if err != nil {
		return server.Config{}, err
	}
	networks, err := webhooks.ParseNetworks(o.ConversionWebhookNetworks)
	if err != nil {
		return server.Config{}, fmt.Errorf("--conversion-webhook-networks: %w", err)
	}
	accounts := o.ServiceAccounts
	accounts.WithoutDefaults = !o.DefaultServiceAccounts
	cfg := server.Config{
		Shard:              shard,
		Membership:         membership,
		MembershipFile:     o.Membership,
		Capacity:           o.ShardCapacity,
		RootDirectory:      root,
		Host:               host,
		Advertise:          advertised,
		BaseURL:            o.ShardBaseURL,
		FixedBaseURL:       o.ShardBaseURL != "",
		Serving:            o.Serving,
		Limits:             o.Limits,
		ConversionWebhooks: networks,
		ShutdownDelay:      o.ShutdownDelay,
		ClientCAFile:       o.ClientCAFile,
		TokenFile:          o.TokenFile,
		ServiceAccounts:    accounts,

		AuthenticationConfigFile: o.AuthenticationConfigFile,
		TokenWebhook:             o.TokenWebhook,
		AuthorizationConfigFile:  o.AuthorizationConfigFile,

		Etcd:                 o.Etcd.Transport,
		EtcdPrefix:           o.Etcd.Prefix,
		EncryptionConfigFile: o.EncryptionConfigFile,
		EnableLeaderElection: o.Election.Enabled,
		Election:             stands,
		Detect:               o.Detect,
		ProbePort:            o.ProbePort,
		Fencing:              edge.Fencing(o.Fencing),
		Registry:             registry,
		Policies:             policies,
		Audit:                o.Audit,
		Tracing:              o.Tracing,
		Profiling:            o.Profiling,
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://" + net.JoinHostPort(host, strconv.Itoa(o.Serving.BindPort))
	}
	if len(o.Etcd.Transport.ServerList) == 0 {
		cfg.EmbeddedEtcd = &etcd.Config{
			Directory:  filepath.Join(root, "etcd"),
			ClientPort: o.Etcd.EmbeddedClientPort,
			Quota:      o.Etcd.EmbeddedQuota,
		}
	}
	return cfg, nil
}

// defaultShardName is the name of a shard that is alone.
const defaultShardName = "root"

// joins returns the name of the shard, and the membership with which it joins an installation, if it does.
func (o *Options) joins() (shard string, membership *pki.Membership, err error) {
	if o.Membership == "" {
		return o.ShardName, nil, nil
	}
	membership, err = pki.ReadMembership(o.Membership)
	if err != nil {
		return "", nil, fmt.Errorf("--membership: %w", err)
	}
	if membership.Member.Kind != pki.KindShard {
		return "", nil, fmt.Errorf("--membership: %s is for a %s, and this is a shard", o.Membership, membership.Member.Kind)
	}
	if o.ShardName != defaultShardName && o.ShardName != membership.Member.Name {
		return "", nil, fmt.Errorf("--membership: %s is for shard %s, and --shard-name is %s: leave --shard-name out, or have a membership made for that name",
			o.Membership, membership.Member.Name, o.ShardName)
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
