package options

import (
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/flagz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/regent-project/regent/pkg/server"
)

// The flag for feature gates lists the gates that are known when it is made.
func init() { utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate)) }

// Flags returns the flags that set o, in the groups that --help shows. Call it once.
func (o *Options) Flags() (flags cliflag.NamedFlagSets) {
	generic := flags.FlagSet("generic")
	generic.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory for generated keys, admin.kubeconfig and the embedded etcd's data.")
	generic.StringVar(&o.ShardName, "shard-name", o.ShardName, "Name of the shard, the same for all its replicas. With --membership the default is the name there.")
	generic.StringVar(&o.ReplicaName, "replica-name", o.ReplicaName, "Name of this replica, by which people and logs call it: lower-case letters, digits, '-' and '.', 63 at most. It stays when the replica is restarted, and no other replica has it. If empty, <host>-<port>, of the host's name and --secure-port; what may not be in a name becomes a dash.")
	generic.StringVar(&o.MembershipFile, "membership", o.MembershipFile, "File with which the shard joins an installation: regent shard add prints it. All replicas of the shard need it at each start. It is read again when it changes. Without it the shard is alone, or the root shard of an installation.")
	generic.Int64Var(&o.Capacity, "shard-capacity", o.Capacity, "How many logical clusters the shard can have. Other shards of the installation assign no more to it.")
	generic.StringVar(&o.AdvertiseAddress, "advertise-address", o.AdvertiseAddress, "IP address that peers dial. If empty, --bind-address; if that is unspecified, the host's default interface.")
	generic.StringVar(&o.ExternalHostname, "external-hostname", o.ExternalHostname, "Host name under which clients reach this replica. If empty, the advertised address.")
	generic.StringVar(&o.ShardBaseURL, "shard-base-url", o.ShardBaseURL, "URL under which clients reach the shard, such as a load balancer's, for spec.URL of workspaces and admin.kubeconfig. If empty, https://<external hostname or advertised address>:<secure port>.")
	generic.IntVar(&o.ProbePort, "probe-port", o.ProbePort, "Port on which other replicas watch whether this one lives, at --bind-address. 0: any free port. Peers must reach it at --advertise-address, and should reach all other ports: a free one is opened beside it, see docs/FAILOVER.md. Not opened without leader election or failure detection.")
	generic.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles below /debug/pprof/, to members of system:masters.")

	generic.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, "How long to keep serving after SIGTERM, so that load balancers notice that /readyz fails: twice the time that they take. In the second half each answer ends its connection. The term ends at once.")
	limits := flags.FlagSet("limits")
	limits.DurationVar(&o.Limits.RequestTimeout, "request-timeout", o.Limits.RequestTimeout, "How long a request other than a watch may take, and how long its body may take to arrive.")
	limits.IntVar(&o.Limits.RequestsInFlight, "max-requests-inflight", o.Limits.RequestsInFlight, "Together with --max-mutating-requests-inflight: how many places there are for requests that are handled. Small requests take one, large lists more. Logical clusters share them; further requests wait, and then are answered with 429. Watches take a place only while they begin. Both 0: no such limit. See docs/TENANCY.md.")
	limits.IntVar(&o.Limits.MutatingRequestsInFlight, "max-mutating-requests-inflight", o.Limits.MutatingRequestsInFlight, "Added to --max-requests-inflight.")
	limits.IntVar(&o.Limits.RequestsPerCPU, "max-requests-inflight-per-cpu", o.Limits.RequestsPerCPU, "Limits the places for requests, too, to so many for each CPU that the process may use. Requests that are handled share the CPUs: with more places no more is done, but each request is slower. Raise it if the CPUs are idle while requests wait (regent_requests_waiting), such as with a slow etcd. 0: no such limit.")
	limits.IntVar(&o.Limits.Connections, "max-connections", o.Limits.Connections, "How many connections to this replica may be open. Further ones are closed at once. 0: three quarters of the file descriptors that the process may open, which is the upper limit in any case.")
	limits.IntVar(&o.Limits.ConnectionsPerClient, "max-connections-per-client", o.Limits.ConnectionsPerClient, "How many connections one IP address (IPv6: one /64 network) may have open. 0: half of --max-connections. Give the same as --max-connections if all clients come through one load balancer that does not pass on their addresses.")
	limits.IntVar(&o.Limits.Watches, "max-watches", o.Limits.Watches, "How many watches may be open on this replica. One user may have half of them, one logical cluster as many as are free. Further ones are answered with 429. Each takes some 60 KiB of memory. 0: no limit.")
	limits.Int64Var(&o.Limits.ObjectsPerCluster, "max-objects-per-cluster", o.Limits.ObjectsPerCluster, "How many objects a logical cluster may store, unless the annotation quota.regent.dev/max-objects of its LogicalCluster says something else. Creations beyond it are answered with 403. 0: no limit.")
	limits.Int64Var(&o.Limits.BytesPerCluster, "max-bytes-per-cluster", o.Limits.BytesPerCluster, "How many bytes the objects of a logical cluster may have in etcd, otherwise as --max-objects-per-cluster. The annotation is quota.regent.dev/max-bytes. 0: as many as etcd has room for, but never all of it (docs/TENANCY.md#what-etcd-has-room-for).")
	limits.Int64Var(&o.Limits.WorkspacesPerCluster, "max-workspaces-per-cluster", o.Limits.WorkspacesPerCluster, "How many workspaces may be in a logical cluster, not counting those below them, otherwise as --max-objects-per-cluster. The annotation is quota.regent.dev/max-workspaces.")
	limits.Int64Var(&o.Limits.HistoryBytes, "max-history-bytes", o.Limits.HistoryBytes, "How many bytes of changes this replica keeps in memory for watches, for 80 s. A logical cluster or user that has written as many bytes within that time as all others have left is answered with 429. 0: no limit.")
	limits.IntVar(&o.Limits.WorkspaceDepth, "max-workspace-depth", o.Limits.WorkspaceDepth, "How many workspaces deep a path below root may be: with 2, root:a:b may be, and root:a:b:c is refused with 403. Without it anybody who has a workspace can make as many as they like, each with a quota of its own. 0: no limit.")
	limits.Float64Var(&o.Limits.GoawayChance, "goaway-chance", o.Limits.GoawayChance, "The share of HTTP/2 requests after which the client is told to reconnect, so that clients spread over the replicas behind a load balancer. 0 is off, the maximum is 0.02; 0.001 is a good start.")

	serving := flags.FlagSet("secure serving")
	o.Serving.AddFlags(serving)
	serving.Lookup("bind-address").Usage = "IP address on which to listen; 0.0.0.0 or :: is all addresses."
	serving.Lookup("secure-port").Usage = "Port on which to serve HTTPS."
	serving.Lookup("tls-cipher-suites").Usage = "Comma-separated cipher suites for TLS 1.2. Those of TLS 1.3 cannot be chosen. The default has no suites with CBC."
	serving.StringSliceVar(&o.Limits.HSTS, "strict-transport-security-directives", o.Limits.HSTS, "Directives of the header Strict-Transport-Security, such as max-age=31536000,includeSubDomains. If empty, there is no such header.")

	etcd := flags.FlagSet("etcd")
	etcd.StringSliceVar(&o.Etcd.ServerList, "etcd-servers", o.Etcd.ServerList, "Comma-separated URLs of the etcd servers. If empty, an etcd is embedded, with its data in <root-directory>/etcd.")
	etcd.StringVar(&o.EtcdPrefix, "etcd-prefix", o.EtcdPrefix, "Prefix of all keys in etcd. Shards on one etcd have different ones.")
	etcd.StringVar(&o.Etcd.TrustedCAFile, "etcd-cafile", o.Etcd.TrustedCAFile, "Certificate authority of the etcd servers.")
	etcd.StringVar(&o.Etcd.CertFile, "etcd-certfile", o.Etcd.CertFile, "Client certificate for the etcd servers.")
	etcd.StringVar(&o.Etcd.KeyFile, "etcd-keyfile", o.Etcd.KeyFile, "Key of the client certificate for the etcd servers.")
	etcd.StringSliceVar(&o.BackupRecipients, "backup-recipients", o.BackupRecipients, "Comma-separated recipients of age (age1..., as age-keygen prints them) for whom backups of the shard are sealed, 8 at most: only they can read them. The same for all replicas. If empty, regent backup run is refused.")
	etcd.StringVar(&o.EncryptionConfigFile, "encryption-provider-config", o.EncryptionConfigFile, "File with an EncryptionConfiguration (apiserver.config.k8s.io/v1) that says how objects are encrypted in etcd. Reloaded when it changes: all replicas of a shard need the same keys.")
	etcd.IntVar(&o.EmbeddedEtcd.ClientPort, "embedded-etcd-client-port", o.EmbeddedEtcd.ClientPort, "Loopback port of the embedded etcd; 0 is any free port.")
	etcd.Int64Var(&o.EmbeddedEtcd.Quota, "embedded-etcd-quota-bytes", o.EmbeddedEtcd.Quota, "Size at which the embedded etcd refuses writes.")

	authentication := flags.FlagSet("authentication")
	authentication.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "Further certificate authorities for client certificates. The one in <root-directory>/pki is always trusted. The common name is the user, the organisations are the groups.")
	authentication.StringVar(&o.TokenFile, "token-auth-file", o.TokenFile, "CSV file of bearer tokens: token,user,uid and optionally \"group1,group2\".")
	authentication.StringVar(&o.ServiceAccounts.SigningKeyFile, "service-account-signing-key-file", o.ServiceAccounts.SigningKeyFile, "Private key in PEM that signs tokens of service accounts: ECDSA, or RSA of at least 2048 bits. If empty, <root-directory>/pki/serviceaccount.key, which is made at the first start. All replicas of a shard need the same.")
	authentication.StringArrayVar(&o.ServiceAccounts.KeyFiles, "service-account-key-file", o.ServiceAccounts.KeyFiles, "Further key in PEM, public or private, whose tokens of service accounts are accepted: that of before a change of the signing key, or the next one. May be given several times.")
	authentication.StringVar(&o.ServiceAccounts.Issuer, "service-account-issuer", o.ServiceAccounts.Issuer, "Issuer of tokens of service accounts, and their audience unless another one is asked for. If empty, regent.dev/shards/<shard name>. A change ends all tokens.")
	authentication.DurationVar(&o.ServiceAccounts.MaxTokenLifetime, "service-account-max-token-expiration", o.ServiceAccounts.MaxTokenLifetime, "How long tokens of service accounts are valid at most. Requests for longer ones get that.")
	authentication.StringVar(&o.AuthenticationConfigFile, "authentication-config", o.AuthenticationConfigFile, "File with an AuthenticationConfiguration (apiserver.config.k8s.io/v1): issuers of OpenID Connect tokens, and how their claims become users. Read again when it changes; a faulty file changes nothing. Its anonymous users may have the public paths and no others. All replicas of all shards of an installation need the same.")
	authentication.StringVar(&o.TokenWebhook.File, "authentication-token-webhook-config-file", o.TokenWebhook.File, "Kubeconfig that leads to a webhook, which says whose tokens are that nobody else knows (TokenReview). Read at the start.")
	authentication.StringVar(&o.TokenWebhook.Version, "authentication-token-webhook-version", o.TokenWebhook.Version, "Version of TokenReview (authentication.k8s.io) to send to the webhook: v1 or v1beta1.")
	authentication.DurationVar(&o.TokenWebhook.TTL, "authentication-token-webhook-cache-ttl", o.TokenWebhook.TTL, "How long the webhook's answers are remembered, and so how long a token works that was withdrawn.")

	flags.FlagSet("authorization").StringVar(&o.AuthorizationConfigFile, "authorization-config", o.AuthorizationConfigFile, "File with an AuthorizationConfiguration (apiserver.config.k8s.io/v1): webhooks that are asked what users may do (SubjectAccessReview), and the place of RBAC among them. Read again when it changes; a faulty file changes nothing. Webhooks are not asked about members of system:masters.")

	flags.FlagSet("custom resources").StringSliceVar(&o.ConversionWebhookNetworks, "conversion-webhook-networks", o.ConversionWebhookNetworks, "Where conversion webhooks of custom resources may be, which users name and this server calls: public is all of the internet, without addresses that are private, loopback, link-local or a cloud's own. Others are given as addresses or networks, such as 10.1.0.0/16. Empty: no conversion webhook is called. All replicas of all shards need the same. See docs/CUSTOM-RESOURCES.md.")

	addElectionFlags(&o.Election, flags.FlagSet("leader election"))
	o.Detect.AddFlags(flags.FlagSet("leader election"))
	flags.FlagSet("leader election").StringVar((*string)(&o.Fencing), "fencing", string(o.Fencing), "What happens to writes by the leader's controllers that carry no fencing token: enforce refuses them, warn lets them through and logs the first of each kind. A token that is there is always checked. Without --enable-leader-election no token is required. See docs/FENCING.md.")
	flags.FlagSet("controllers").BoolVar(&o.DefaultServiceAccounts, "default-service-accounts", o.DefaultServiceAccounts, "Keep a service account default and a ConfigMap kube-root-ca.crt in each namespace, as Kubernetes does. Without them a workspace takes fewer writes and less memory. What is there already stays.")
	flags.FlagSet("controllers").StringVar(&o.ServiceAccounts.RootCAFile, "root-ca-file", o.ServiceAccounts.RootCAFile, "Certificate authorities in PEM by which clients know the API: kube-root-ca.crt of each namespace has them. If empty, the one in <root-directory>/pki.")
	flags.FlagSet("controllers").StringSliceVar(&o.FailurePolicies, "controller-failure-policy", o.FailurePolicies, "What happens when a controller fails: restart (the default; after too many restarts the replica steps down), step-down, or exit. <policy> applies to all controllers, <controller>=<policy> to one. May be given several times. See docs/SUPERVISION.md.")
	o.Audit.AddFlags(flags.FlagSet("auditing"))
	o.Tracing.AddFlags(flags.FlagSet("traces"))
	utilfeature.DefaultMutableFeatureGate.AddFlag(flags.FlagSet("features"))
	logsapi.AddFlags(o.Logs, flags.FlagSet("logs"))
	return flags
}

// PublicFlags are flags with their values, as /flagz shows them: without the passwords of URLs.
type PublicFlags struct{ FlagSets cliflag.NamedFlagSets }

// GetFlagz implements flagz.Reader.
func (s PublicFlags) GetFlagz() map[string]string {
	all := flagz.NamedFlagSetsReader(s).GetFlagz()
	for name, value := range all {
		if !strings.Contains(value, "://") {
			continue
		}
		list := strings.TrimSuffix(strings.TrimPrefix(value, "["), "]") // as pflag shows a slice
		urls := strings.Split(list, ",")
		for i, u := range urls {
			urls[i] = server.WithoutPassword(u)
		}
		all[name] = strings.Replace(value, list, strings.Join(urls, ","), 1)
	}
	return all
}

var _ flagz.Reader = PublicFlags{}
