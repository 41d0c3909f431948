package options

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	utilsnet "k8s.io/utils/net"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/identity"
)

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
	if msgs := validation.IsDNS1123Subdomain(o.ReplicaName); o.ReplicaName != "" && (len(msgs) > 0 || len(o.ReplicaName) > server.LongestReplica) {
		bad("--replica-name %q must have 1 to %d lower-case letters, digits, '-' and '.', and each part between dots must begin and end with a letter or digit: in a pod give its name, or leave the flag out", o.ReplicaName, server.LongestReplica)
	}
	if o.Capacity < 1 {
		bad("--shard-capacity %d must be at least 1; to take no new logical clusters, use regent shard cordon", o.Capacity)
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
	errs = append(errs, o.etcdFaults()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Tracing.Validate()...)
	errs = append(errs, o.Election.faults()...)
	if err := o.Detect.ValidateAs(func(field string) string { return detectFlags[field] }); err != nil {
		errs = append(errs, err)
	}
	if !slices.Contains(edge.FencingValues, o.Fencing) {
		bad("--fencing %q must be one of %q", o.Fencing, edge.FencingValues)
	} else if o.Election.Detection == election.DetectSuspect && o.Fencing != edge.FencingEnforce {
		bad("--leader-failure-detection=suspect needs --fencing=enforce: a leader that is only slow would keep writing beside its successor")
	}
	if _, err := bundle.ParseRecipients(o.BackupRecipients); err != nil {
		bad("--backup-recipients: %w", err)
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
		{"--max-history-bytes", l.HistoryBytes},
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
	}{{"--secure-port", o.Serving.BindPort}, {"--probe-port", o.ProbePort}, {"--embedded-etcd-client-port", o.EmbeddedEtcd.ClientPort}} {
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
		{"--etcd-cafile", o.Etcd.TrustedCAFile},
		{"--etcd-certfile", o.Etcd.CertFile},
		{"--etcd-keyfile", o.Etcd.KeyFile},
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
	if versions := []string{"v1", "v1beta1"}; !slices.Contains(versions, o.TokenWebhook.Version) {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-version %q must be one of %q", o.TokenWebhook.Version, versions))
	}
	if o.TokenWebhook.TTL < 0 {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-cache-ttl %v must not be negative; 0 turns the cache off", o.TokenWebhook.TTL))
	}
	return errs
}

func (o *Options) etcdFaults() []error {
	var errs []error
	if !strings.HasPrefix(o.EtcdPrefix, "/") || o.EtcdPrefix == "/" || path.Clean(o.EtcdPrefix) != o.EtcdPrefix {
		errs = append(errs, fmt.Errorf("--etcd-prefix %q must be a path such as /registry: it begins with a slash, does not end with one and has no empty, . or .. elements", o.EtcdPrefix))
	}
	tls := o.Etcd.TrustedCAFile+o.Etcd.CertFile+o.Etcd.KeyFile != ""
	for _, s := range o.Etcd.ServerList {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			errs = append(errs, fmt.Errorf("--etcd-servers: %q is no URL such as https://127.0.0.1:2379", s))
		case u.Scheme == "http" && tls:
			errs = append(errs, fmt.Errorf("--etcd-servers: %q is without TLS, and --etcd-cafile, --etcd-certfile and --etcd-keyfile are for https: give https, or none of them", s))
		}
	}
	if (o.Etcd.CertFile == "") != (o.Etcd.KeyFile == "") {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-keyfile go together: give both or none"))
	}
	if len(o.Etcd.ServerList) == 0 && o.Etcd.TrustedCAFile+o.Etcd.CertFile != "" {
		errs = append(errs, errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile are for --etcd-servers, which is not given"))
	}
	if len(o.Etcd.ServerList) > 0 && o.EmbeddedEtcd.ClientPort != 0 {
		errs = append(errs, errors.New("--embedded-etcd-client-port contradicts --etcd-servers: with it no etcd is embedded"))
	}
	if o.EmbeddedEtcd.ClientPort < 0 || o.EmbeddedEtcd.ClientPort > 65535 {
		errs = append(errs, fmt.Errorf("--embedded-etcd-client-port %d must be between 0 and 65535", o.EmbeddedEtcd.ClientPort))
	}
	if o.EmbeddedEtcd.Quota <= 0 {
		errs = append(errs, fmt.Errorf("--embedded-etcd-quota-bytes %d must be positive", o.EmbeddedEtcd.Quota))
	}
	return errs
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

// minTokenLifetime is the shortest lifetime that can be asked for.
const minTokenLifetime = 10 * time.Minute

func serviceAccountFaults(s identity.ServiceAccounts) []error {
	var errs []error
	if s.MaxTokenLifetime < minTokenLifetime {
		errs = append(errs, fmt.Errorf("--service-account-max-token-expiration %v must be at least %v: nobody may ask for less", s.MaxTokenLifetime, minTokenLifetime))
	}
	if u, err := url.Parse(s.Issuer); strings.Contains(s.Issuer, ":") && (err != nil || u.Scheme == "" || u.Host == "") {
		errs = append(errs, fmt.Errorf("--service-account-issuer %q has a colon and is no URL: give a URL, or a name without colons", s.Issuer))
	}
	return errs
}
