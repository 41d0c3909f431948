// Package options turns command-line flags into a server.Config. It checks everything that can be checked before anything
// starts, and reports each fault in one line.
package options

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	utilsnet "k8s.io/utils/net"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/pki"
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
	Limits           server.Limits
	ShutdownDelay    time.Duration

	Serving      *genericoptions.SecureServingOptions
	Etcd         EtcdOptions
	ClientCAFile string
	TokenFile    string
	// ServiceAccounts says how tokens of service accounts are made and checked.
	ServiceAccounts server.ServiceAccounts
	// DefaultServiceAccounts says whether namespaces get the service account default, and the ConfigMap kube-root-ca.crt.
	DefaultServiceAccounts bool
	// AuthenticationConfigFile names a file with an AuthenticationConfiguration. Empty: there are no issuers of tokens.
	AuthenticationConfigFile string
	TokenWebhook             authentication.Webhook
	// AuthorizationConfigFile names a file with an AuthorizationConfiguration. Empty: no webhook is asked.
	AuthorizationConfigFile string
	// EncryptionConfigFile names a file with an EncryptionConfiguration. Empty: objects are stored unencrypted.
	EncryptionConfigFile string
	Election             ElectionOptions
	Detect               detect.Config
	// Fencing is one of server.FencingValues.
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
		RootDirectory:          ".regent",
		ShardName:              defaultShardName,
		ShardCapacity:          clusters.DefaultCapacity,
		Limits:                 server.DefaultLimits(),
		ServiceAccounts:        server.ServiceAccounts{MaxTokenLifetime: server.DefaultMaxTokenLifetime},
		DefaultServiceAccounts: true,
		Serving:                serving,
		Etcd:                   EtcdOptions{Prefix: "/registry", EmbeddedQuota: etcd.DefaultQuota},
		Election:               defaultElection(),
		Detect:                 detect.DefaultConfig(),
		Fencing:                string(server.FencingEnforce),
		TokenWebhook:           authentication.Webhook{Version: "v1", TTL: 2 * time.Minute},
		Audit:                  genericoptions.NewAuditOptions(),
		Tracing:                genericoptions.NewTracingOptions(),
		Logs:                   logsapi.NewLoggingConfiguration(),
	}
}

// defaultCipherSuites returns Go's cipher suites for TLS 1.2 without those in CBC mode, which do not authenticate what they
// encrypt.
func defaultCipherSuites() []string {
	var names []string
	for _, suite := range tls.CipherSuites() {
		if slices.Contains(suite.SupportedVersions, tls.VersionTLS12) && !strings.Contains(suite.Name, "_CBC_") {
			names = append(names, suite.Name)
		}
	}
	return names
}

// Validate returns all faults, one line each, with the name of the flag.
func (o *Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if o.RootDirectory == "" {
		bad("--root-directory must not be empty")
	}
	if msgs := validation.IsDNS1123Label(o.ShardName); len(msgs) > 0 {
		bad("--shard-name %q is no DNS label: %s", o.ShardName, strings.Join(msgs, "; "))
	}
	if o.ShardCapacity < 1 {
		bad("--shard-capacity %d must be at least 1; to take no new logical clusters, use regent shard cordon", o.ShardCapacity)
	}
	if o.AdvertiseAddress != "" {
		if ip := utilsnet.ParseIPSloppy(o.AdvertiseAddress); ip == nil || ip.IsUnspecified() {
			bad("--advertise-address %q is no IP address that peers can dial", o.AdvertiseAddress)
		}
	}
	if o.ExternalHostname != "" && len(validation.IsDNS1123Subdomain(o.ExternalHostname)) > 0 && utilsnet.ParseIPSloppy(o.ExternalHostname) == nil {
		bad("--external-hostname %q is neither a host name nor an IP address", o.ExternalHostname)
	}
	if o.ShardBaseURL != "" {
		if fault := baseURLFault(o.ShardBaseURL); fault != "" {
			bad("--shard-base-url %q %s", o.ShardBaseURL, fault)
		}
	}
	if o.ProbePort < 0 || o.ProbePort > 65535 {
		bad("--probe-port %d must be between 0 and 65535", o.ProbePort)
	}
	errs = append(errs, o.limitFaults()...)
	errs = append(errs, o.servingFaults()...)
	errs = append(errs, o.portFaults()...)
	errs = append(errs, o.missingFiles()...)
	errs = append(errs, serviceAccountFaults(o.ServiceAccounts)...)
	errs = append(errs, o.webhookFaults()...)
	errs = append(errs, o.Etcd.faults()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Tracing.Validate()...)
	errs = append(errs, o.Election.faults()...)
	if err := o.Detect.Validate(); err != nil {
		errs = append(errs, err)
	}
	if !slices.Contains(server.FencingValues, server.Fencing(o.Fencing)) {
		bad("--fencing %q must be one of %q", o.Fencing, server.FencingValues)
	} else if o.Election.Detection == election.DetectSuspect && server.Fencing(o.Fencing) != server.FencingEnforce {
		bad("--leader-failure-detection=suspect needs --fencing=enforce: a leader that is only slow would go on writing beside its successor")
	}
	for _, err := range logsapi.Validate(o.Logs, utilfeature.DefaultFeatureGate, field.NewPath("logging")) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (o *Options) servingFaults() []error {
	errs := o.Serving.Validate()
	if o.Serving.ServerCert.CertDirectory != "" {
		errs = append(errs, errors.New("--cert-dir is not used: give --tls-cert-file and --tls-private-key-file, or let the certificate be signed by <root-directory>/pki"))
	}
	if pair := o.Serving.ServerCert.CertKey; (pair.CertFile == "") != (pair.KeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file go together: give both or none"))
	}
	if _, err := cliflag.TLSCipherSuites(o.Serving.CipherSuites); err != nil {
		errs = append(errs, fmt.Errorf("--tls-cipher-suites: %w: choose from %q", err, cliflag.TLSCipherPossibleValues()))
	}
	if _, err := cliflag.TLSVersion(o.Serving.MinTLSVersion); err != nil {
		errs = append(errs, fmt.Errorf("--tls-min-version: %w: choose from %q", err, cliflag.TLSPossibleVersions()))
	}
	return errs
}

// limitFaults returns the faults of limits and of the shutdown delay.
func (o *Options) limitFaults() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	l := o.Limits
	if l.RequestTimeout < time.Second {
		bad("--request-timeout %v must be at least 1s: requests that take longer are ended", l.RequestTimeout)
	}
	for _, limit := range []struct {
		flag  string
		value int64
	}{
		{"--max-requests-inflight", int64(l.RequestsInFlight)},
		{"--max-mutating-requests-inflight", int64(l.MutatingRequestsInFlight)},
		{"--max-requests-inflight-per-cpu", int64(l.RequestsPerCPU)},
		{"--max-connections", int64(l.Connections)},
		{"--max-connections-per-client", int64(l.ConnectionsPerClient)},
		{"--max-watches", int64(l.Watches)},
		{"--max-objects-per-cluster", l.ObjectsPerCluster},
		{"--max-bytes-per-cluster", l.BytesPerCluster},
		{"--max-workspaces-per-cluster", l.WorkspacesPerCluster},
		{"--max-workspace-depth", int64(l.WorkspaceDepth)},
	} {
		if limit.value < 0 {
			bad("%s %d must not be negative", limit.flag, limit.value)
		}
	}
	if l.Connections > 0 && l.ConnectionsPerClient > l.Connections {
		bad("--max-connections-per-client %d must not be above --max-connections %d", l.ConnectionsPerClient, l.Connections)
	}
	if l.GoawayChance < 0 || l.GoawayChance > maxGoawayChance || math.IsNaN(l.GoawayChance) {
		bad("--goaway-chance %v must be between 0 and %v: one request in 50", l.GoawayChance, maxGoawayChance)
	}
	if o.ShutdownDelay < 0 {
		bad("--shutdown-delay-duration %v must not be negative", o.ShutdownDelay)
	}
	for _, directive := range l.HSTS {
		if !isHSTS(directive) {
			bad("--strict-transport-security-directives: %q must be max-age=<seconds>, includeSubDomains or preload", directive)
		}
	}
	return errs
}

// maxGoawayChance is upstream's maximum.
const maxGoawayChance = 0.02

// isHSTS reports whether a directive is valid by RFC 6797, 6.1.
func isHSTS(directive string) bool {
	if seconds, ok := strings.CutPrefix(directive, "max-age="); ok {
		_, err := strconv.ParseUint(seconds, 10, 63)
		return err == nil
	}
	return directive == "includeSubDomains" || directive == "preload"
}

// portFaults returns an error for each port that is given twice.
func (o *Options) portFaults() []error {
	var errs []error
	taken := map[int]string{}
	for _, port := range []struct {
		flag   string
		number int
	}{{"--secure-port", o.Serving.BindPort}, {"--probe-port", o.ProbePort}, {"--embedded-etcd-client-port", o.Etcd.EmbeddedClientPort}} {
		if other, ok := taken[port.number]; ok && port.number != 0 {
			errs = append(errs, fmt.Errorf("%s and %s are both %d: give different ports", other, port.flag, port.number))
		}
		taken[port.number] = port.flag
	}
	return errs
}

// missingFiles returns an error for each file that a flag names and that cannot be read.
func (o *Options) missingFiles() []error {
	var errs []error
	type named struct{ flag, name string }
	files := []named{
		{"--tls-cert-file", o.Serving.ServerCert.CertKey.CertFile},
		{"--tls-private-key-file", o.Serving.ServerCert.CertKey.KeyFile},
		{"--etcd-cafile", o.Etcd.Transport.TrustedCAFile},
		{"--etcd-certfile", o.Etcd.Transport.CertFile},
		{"--etcd-keyfile", o.Etcd.Transport.KeyFile},
		{"--client-ca-file", o.ClientCAFile},
		{"--token-auth-file", o.TokenFile},
		{"--root-ca-file", o.ServiceAccounts.RootCAFile},
		{"--service-account-signing-key-file", o.ServiceAccounts.SigningKeyFile},
		{"--authentication-config", o.AuthenticationConfigFile},
		{"--authentication-token-webhook-config-file", o.TokenWebhook.File},
		{"--authorization-config", o.AuthorizationConfigFile},
		{"--audit-policy-file", o.Audit.PolicyFile},
		{"--encryption-provider-config", o.EncryptionConfigFile},
	}
	for _, name := range o.ServiceAccounts.KeyFiles {
		files = append(files, named{"--service-account-key-file", name})
	}
	for _, f := range files {
		if f.name == "" {
			continue
		}
		file, err := os.Open(f.name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.flag, err))
			continue
		}
		_ = file.Close()
	}
	return errs
}

func (o *Options) webhookFaults() []error {
	var errs []error
	if known := []string{"v1", "v1beta1"}; !slices.Contains(known, o.TokenWebhook.Version) {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-version %q must be one of %q", o.TokenWebhook.Version, known))
	}
	if o.TokenWebhook.TTL < 0 {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-cache-ttl %v must not be negative; 0 turns the cache off", o.TokenWebhook.TTL))
	}
	return errs
}

func (o *EtcdOptions) faults() []error {
	var errs []error
	if !strings.HasPrefix(o.Prefix, "/") || o.Prefix == "/" || path.Clean(o.Prefix) != o.Prefix {
		errs = append(errs, fmt.Errorf("--etcd-prefix %q must be a path such as /registry: it begins with a slash, does not end with one and has no empty, . or .. elements", o.Prefix))
	}
	tls := o.Transport.TrustedCAFile+o.Transport.CertFile+o.Transport.KeyFile != ""
	for _, s := range o.Transport.ServerList {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			errs = append(errs, fmt.Errorf("--etcd-servers: %q is no URL such as https://127.0.0.1:2379", s))
		case u.Scheme == "http" && tls:
			errs = append(errs, fmt.Errorf("--etcd-servers: %q is without TLS, and --etcd-cafile, --etcd-certfile and --etcd-keyfile are for https: give https, or none of them", s))
		}
	}
	if (o.Transport.CertFile == "") != (o.Transport.KeyFile == "") {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile go together: give both or none"))
	}
	if len(o.Transport.ServerList) == 0 && o.Transport.TrustedCAFile+o.Transport.CertFile != "" {
		errs = append(errs, errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile are for --etcd-servers, which is not given"))
	}
	if len(o.Transport.ServerList) > 0 && o.EmbeddedClientPort != 0 {
		errs = append(errs, errors.New("--embedded-etcd-client-port contradicts --etcd-servers: with it no etcd is embedded"))
	}
	if o.EmbeddedClientPort < 0 || o.EmbeddedClientPort > 65535 {
		errs = append(errs, fmt.Errorf("--embedded-etcd-client-port %d must be between 0 and 65535", o.EmbeddedClientPort))
	}
	if o.EmbeddedQuota <= 0 {
		errs = append(errs, fmt.Errorf("--embedded-etcd-quota-bytes %d must be positive", o.EmbeddedQuota))
	}
	return errs
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
	accounts := o.ServiceAccounts
	accounts.WithoutDefaults = !o.DefaultServiceAccounts
	cfg := server.Config{
		Shard:           shard,
		Membership:      membership,
		MembershipFile:  o.Membership,
		Capacity:        o.ShardCapacity,
		RootDirectory:   root,
		Host:            host,
		Advertise:       advertised,
		BaseURL:         o.ShardBaseURL,
		FixedBaseURL:    o.ShardBaseURL != "",
		Serving:         o.Serving,
		Limits:          o.Limits,
		ShutdownDelay:   o.ShutdownDelay,
		ClientCAFile:    o.ClientCAFile,
		TokenFile:       o.TokenFile,
		ServiceAccounts: accounts,

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
		Fencing:              server.Fencing(o.Fencing),
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
	if err := policies.Validate(registry); err != nil {
		return controllers.Policies{}, errors.New("--controller-failure-policy: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return policies, nil
}

// advertised returns the address that peers dial: the given one, else the one that the server listens on, else the host's.
func (o *Options) advertised() (net.IP, error) {
	if o.AdvertiseAddress != "" {
		return utilsnet.ParseIPSloppy(o.AdvertiseAddress), nil
	}
	if !o.Serving.BindAddress.IsUnspecified() {
		// Upstream would take the host's default interface in place of a loopback address. Nobody listens there.
		return o.Serving.BindAddress, nil
	}
	ip, err := o.Serving.DefaultExternalAddress()
	if err != nil {
		return nil, fmt.Errorf("cannot find an address of this host that peers can dial, give --advertise-address: %w", err)
	}
	return ip, nil
}

func baseURLFault(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "is no URL"
	case u.Scheme != "https" || u.Host == "":
		return "must be an https URL with a host"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "must be a scheme, a host and a port only, without a trailing slash"
	}
	return ""
}
