// Package server composes a replica: storage, logical clusters, the APIs, and the controllers that run beside them.
// Package apis decides what is served, package election who leads, package terms what runs in a term.
package server

import (
	"io/fs"
	"net"
	"time"

	"k8s.io/apiserver/pkg/server/flagz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/webhooks"
)

// shutdownAllowance is how long a server may by default take to stop after its term has ended.
const shutdownAllowance = 20 * time.Second

// watchGrace is how long clients' watches may go on after the listener has closed. They are ended one by one, so that
// not all clients reconnect at the same moment.
const watchGrace = 5 * time.Second

// Config is what New needs. /configz shows it: see configz.go for what is hidden.
type Config struct {
	Settings

	// Shard is the shard's name, the same on all its replicas.
	Shard string
	// Replica is the name of this replica, which stays when its process is started anew: a DNS subdomain of at most
	// LongestReplica bytes, which no other replica has. Empty: <host>-<port>.
	Replica string
	// Membership is what this shard has joined an installation with, as MembershipFile had it. Nil: the shard is
	// alone, or the root shard of an installation.
	Membership *pki.Membership
	// RootDirectory holds generated keys (pki/), admin.kubeconfig and, while the process lives, a file in
	// replicas/.
	RootDirectory string
	// Host is the name or address under which clients reach this replica. Advertise is the address that peers dial.
	// The serving certificate is valid for both.
	Host      string
	Advertise net.IP
	// BaseURL is the URL under which clients reach the shard, without a trailing slash. FixedBaseURL says that the
	// operator has chosen it: an admin.kubeconfig that names another URL is rewritten.
	BaseURL      string
	FixedBaseURL bool
	// ConversionWebhooks are where the webhooks may be that definitions of custom resources name. The zero value:
	// nowhere.
	ConversionWebhooks webhooks.Networks
	// EmbeddedEtcd is the etcd to run in this process. Nil: the server uses Etcd.
	EmbeddedEtcd *etcd.Config

	// EnableLeaderElection makes this replica a candidate. Otherwise it runs the controllers whenever nobody holds
	// the Lease, and two replicas without it do not detect each other: give it to every replica if there is more
	// than one.
	EnableLeaderElection bool
	// Election says how this replica stands for election. The server sets Client, Candidates, Cluster,
	// ReplicasDirectory, Replica, Instance, Fenced, Detector, ForgetCommand and Notify.
	Election election.Config
	// Registry lists the controllers to run. Policies say what happens when they fail.
	Registry *controllers.Registry
	Policies controllers.Policies

	// Flags are what /flagz shows. Nil: there is no /flagz.
	Flags flagz.Reader
	// Docs are the pages at /ui/docs/, by their paths in the repository; docs/README.md must be one. Nil: there are
	// none. Package regent has them.
	Docs fs.FS
	// ShutdownTimeout is how long Run may take to return after its context has ended. 0 stands for the time that a
	// term may take to end, plus 20 s, plus ShutdownDelay. With the default timings and no delay that is 40 s.
	ShutdownTimeout time.Duration

	// The fields below are for tests. 0 stands for the default of terms.Config, and of survey.Config.
	offerAfter, farewell time.Duration
	// informerSource wraps what the informers read, termTransport the requests of a term's controllers. Nil: not
	// wrapped.
	informerSource func(controllers.Source) controllers.Source
	termTransport  transport.WrapperFunc
}

// Settings are the part of a Config that flags set as it is: see package options.
type Settings struct {
	Files
	// Capacity is how many logical clusters the shard can have: other shards assign no more to it. 0 stands for
	// clusters.DefaultCapacity.
	Capacity int64
	// Serving says where to listen. Without a certificate, New makes one that the shard's authority signs.
	Serving *genericoptions.SecureServingOptions
	// Limits are the limits on requests and connections.
	Limits edge.Limits
	// ServiceAccounts says how tokens of service accounts are made and checked.
	ServiceAccounts identity.ServiceAccounts
	// TokenWebhook says whom to ask about tokens that nobody else knows.
	TokenWebhook authentication.Webhook

	// Etcd says which etcd to use, if none is embedded. EtcdPrefix begins all keys.
	Etcd       storagebackend.TransportConfig
	EtcdPrefix string
	// BackupRecipients are recipients of age (age1...), for whom backups of the shard are sealed. Empty: it gives
	// none.
	BackupRecipients []string
	// Formats are what this program reads of what is stored. Zero stands for those of this version: only tests of
	// upgrades have others.
	Formats format.Formats

	// Detect says how often standbys look for signs of life of the leader's process (its Interval and Misses, 0 for
	// the defaults), if Election.Detection is not off. The server sets its other fields. ProbePort is the port,
	// beside Serving's address, on which other replicas probe this one. 0: any free port.
	Detect    detect.Config
	ProbePort int
	// Fencing says what happens to a leader's writes without a fencing token. Empty: edge.FencingEnforce. It has no
	// effect without leader election.
	Fencing edge.Fencing

	// Audit and Tracing are upstream's options. Nil turns them off.
	Audit     *genericoptions.AuditOptions
	Tracing   *genericoptions.TracingOptions
	Profiling bool
	// ShutdownDelay is how long the server goes on serving, not ready, after its context has ended. Load balancers
	// need it to stop sending requests. The term does not wait for it.
	ShutdownDelay time.Duration
}

// Files are the names of files that an operator gives. Each may be empty. All are read again when they change, except
// that of tokens.
type Files struct {
	// MembershipFile has Config.Membership.
	MembershipFile string
	// ClientCAFile has further authorities for client certificates, TokenFile bearer tokens.
	ClientCAFile, TokenFile string
	// AuthenticationConfigFile has an AuthenticationConfiguration (apiserver.config.k8s.io/v1): issuers of tokens.
	AuthenticationConfigFile string
	// AuthorizationConfigFile has an AuthorizationConfiguration (apiserver.config.k8s.io/v1): webhooks to ask what
	// users may do.
	AuthorizationConfigFile string
	// EncryptionConfigFile has an EncryptionConfiguration (apiserver.config.k8s.io/v1). Empty: objects are stored
	// unencrypted.
	EncryptionConfigFile string
}

// rootShard returns the name of the installation's root shard.
func (c Config) rootShard() string {
	if c.Membership != nil {
		return c.Membership.Root.Name
	}
	return c.Shard
}
