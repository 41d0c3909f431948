// Package server composes an API server: storage, logical clusters, APIs, and the controllers that run beside them. It
// decides nothing: what is served is the business of package apis, who leads that of package election, what a term does
// that of the controllers.
package server

import (
	"net"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/transport"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/detect"
	"github.com/regent-project/regent/pkg/server/etcd"
)

// shutdownAllowance is how long, by default, a server that was asked to stop may take once its term has ended.
const shutdownAllowance = 20 * time.Second

// watchGrace is how long clients' watches may go on after the listener has closed. They are ended one by one, so that
// not all clients come to the next replica at the same moment.
const watchGrace = 5 * time.Second

// Limits are those on what clients ask for. What this process asks of itself is under none of them: a busy server must not
// lose its lease.
type Limits struct {
	// RequestTimeout is how long a request may take that is no watch, its body included; 0 stands for 60 s.
	RequestTimeout time.Duration
	// RequestsInFlight and MutatingRequestsInFlight are how many requests that read, and that change something, are
	// handled at once; more are answered with 429. Members of system:masters are never refused, watches are not counted.
	// 0: no limit.
	RequestsInFlight, MutatingRequestsInFlight int
	// Connections are how many may be open; further ones are closed. 0: no limit, beside three quarters of the file
	// descriptors that the process may open, which always limit it. ConnectionsPerClient is the same for one IP address
	// (IPv6: one /64 network); 0 stands for half of the other.
	Connections, ConnectionsPerClient int
	// Watches are how many may be open; further ones are answered with 429. One user may have half of them, members of
	// system:masters, too. 0: no limit.
	Watches int
	// GoawayChance is for how many of all HTTP/2 requests, between 0 and 1, the client is told to connect anew.
	GoawayChance float64
	// HSTS is what the header Strict-Transport-Security says; empty: there is none.
	HSTS []string
}

// DefaultLimits are those of Kubernetes, and for connections ones that only an attack or a fault should meet.
func DefaultLimits() Limits {
	return Limits{RequestTimeout: defaultRequestTimeout, RequestsInFlight: 400, MutatingRequestsInFlight: 200, Connections: 10_000, Watches: 20_000}
}

// defaultRequestTimeout is upstream's.
const defaultRequestTimeout = 60 * time.Second

// Config says all that a server must be told.
type Config struct {
	// Shard is the shard's name. All replicas of a shard have the same.
	Shard string
	// RootDirectory holds generated keys (pki/), admin.kubeconfig and, while the process lives, a file in replicas/.
	RootDirectory string
	// Host is the name or address under which clients reach this replica, Advertise the address that peers dial. The
	// serving certificate is good for both.
	Host      string
	Advertise net.IP
	// BaseURL is the URL under which clients reach the shard, without a trailing slash. If FixedBaseURL, the operator
	// has chosen it, and an admin.kubeconfig that names another one is rewritten.
	BaseURL      string
	FixedBaseURL bool

	// Serving says where to listen. Without a certificate one is made, signed by the shard's authority.
	Serving *genericoptions.SecureServingOptions
	// ClientCAFile names further authorities for client certificates, TokenFile bearer tokens. Both may be empty.
	ClientCAFile, TokenFile string

	// Limits are those on requests and connections.
	Limits Limits

	// EmbeddedEtcd is the etcd to run. If it is nil, Etcd is the one to use.
	EmbeddedEtcd *etcd.Config
	Etcd         storagebackend.TransportConfig
	// EtcdPrefix begins all keys.
	EtcdPrefix string
	// EncryptionConfigFile names an EncryptionConfiguration (apiserver.config.k8s.io/v1), read at the start; empty:
	// what is stored is not encrypted.
	EncryptionConfigFile string

	// EnableLeaderElection makes this replica a candidate. Otherwise it runs the controllers whenever nobody holds the Lease, and
	// two replicas without it do not detect each other: give it to every replica if there is more than one.
	EnableLeaderElection bool
	// Election says how this replica stands for election. The server sets Client, Candidates, Cluster, ReplicasDirectory,
	// Replica, Fenced, Detector, ForgetCommand and Notify.
	Election election.Config
	// Detect says how often standbys look for signs of life of the leader's process, if Election.Detection is not off: its
	// Interval and Misses, 0 for the defaults. The server sets the rest.
	// ProbePort is where that is done on this replica, next to Serving's address; 0 is any free port.
	Detect    detect.Config
	ProbePort int
	// Fencing says what becomes of a leader's writes without a fencing token; empty: FencingEnforce. It says nothing
	// without leader election.
	Fencing Fencing
	// Registry lists the controllers to run, Policies what their failures do.
	Registry *controllers.Registry
	Policies controllers.Policies

	// Audit and Tracing are upstream's; nil is off.
	Audit     *genericoptions.AuditOptions
	Tracing   *genericoptions.TracingOptions
	Profiling bool

	// ShutdownDelay is for how long the server goes on serving after its context has ended, not ready, so that load
	// balancers send no more to it. The term does not wait for it.
	ShutdownDelay time.Duration
	// ShutdownTimeout is how long Run may take to return after its context has ended. 0 stands for 20 s more than a
	// term may take to end, which makes 40 s with the default timings, and ShutdownDelay.
	ShutdownTimeout time.Duration

	// What follows is for tests. 0 stands for what terms.Config says.
	offerAfter time.Duration
	// informerTransport is what the informers' requests go through, termTransport those of a term's controllers; nil:
	// nothing.
	informerTransport, termTransport transport.WrapperFunc
}
