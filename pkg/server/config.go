// Package server composes an API server: storage, logical clusters, APIs, and the controllers that run beside them. It
// decides nothing: what is served is the business of package apis, who leads that of package election, what a term does
// that of the controllers.
package server

import (
	"net"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"

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

	// EmbeddedEtcd is the etcd to run. If it is nil, Etcd is the one to use.
	EmbeddedEtcd *etcd.Config
	Etcd         storagebackend.TransportConfig
	// EtcdPrefix begins all keys.
	EtcdPrefix string
	// EncryptionConfigFile names an EncryptionConfiguration (apiserver.config.k8s.io/v1), read at the start; empty:
	// what is stored is not encrypted.
	EncryptionConfigFile string

	// Election says whether and how this replica stands for election. The server sets Client, Cluster,
	// ReplicasDirectory, Replica and Detector.
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

	// ShutdownTimeout is how long Run may take to return after its context has ended. 0 stands for 20 s more than a
	// term may take to end, which makes 40 s with the default timings.
	ShutdownTimeout time.Duration

	// What follows is for tests. 0 stands for defaultOffer.
	offerAfter time.Duration
	// informerTransport is what the informers' requests go through, termTransport those of a term's controllers; nil:
	// nothing.
	informerTransport, termTransport wrapTransport
}
