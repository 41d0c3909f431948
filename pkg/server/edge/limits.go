package edge

import (
	"cmp"
	"runtime"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/connections"
)

// Limits are the limits on clients. Requests of this process itself are exempt: a busy leader must still renew its
// lease.
type Limits struct {
	// RequestTimeout is how long a request other than a watch may take, its body included. 0 stands for 60 s.
	RequestTimeout time.Duration
	// RequestsInFlight and MutatingRequestsInFlight are, together, how many places there are for requests that are
	// handled, as with upstream's priority and fairness. Further ones wait, and then are answered with 429: see
	// package fairness. Watches take a place only while they begin. Public paths have places of their own, and own
	// requests need none. Both 0: no such limit.
	RequestsInFlight, MutatingRequestsInFlight int
	// RequestsPerCPU limits the places, too: to so many for each CPU that the process may use. Requests that are
	// handled share the CPUs, so a replica with more of them is not faster, but each of them is slower. 0: no such
	// limit.
	RequestsPerCPU int
	// CPUs is how many CPUs the process may use. 0 stands for GOMAXPROCS.
	CPUs int
	// Connections is how many connections may be open. Further ones are closed. 0: three quarters of the file
	// descriptors that the process may open, which is the upper limit in any case. ConnectionsPerClient is the same
	// for one IP address (IPv6: one /64 network). 0 stands for half of Connections.
	Connections, ConnectionsPerClient int
	// Watches is how many watches may be open. Further ones are answered with 429. One user may have half of them;
	// that includes members of system:masters. One tenant may have as many as are free. 0: no limit.
	Watches int
	// ObjectsPerCluster and BytesPerCluster are how much each logical cluster may store, unless its LogicalCluster
	// says something else (clusters.MaxObjectsAnnotation). Writes beyond are answered with 403. System clusters and
	// permanent ones have no such limit. 0: no limit, but for bytes what etcd has room for
	// (apisadmission.Quota.Room).
	ObjectsPerCluster, BytesPerCluster int64
	// WorkspacesPerCluster is the same for the Workspaces in a cluster. WorkspaceDepth is how many workspaces deep
	// a path below root may be: Workspaces beyond are refused with 403, whoever creates them. 0: no limit.
	WorkspacesPerCluster int64
	WorkspaceDepth       int
	// HistoryBytes is how many bytes of changes each replica keeps in memory for watches, for 80 s. A logical
	// cluster, or a user, that has written as many within that time as others have left is answered with 429. 0: no
	// limit.
	HistoryBytes int64
	// GoawayChance is the share of HTTP/2 requests, from 0 to 1, after which the client is told to reconnect.
	GoawayChance float64
	// HSTS are the directives of the header Strict-Transport-Security. Empty: the header is not sent.
	HSTS []string
}

// DefaultLimits returns Kubernetes' defaults, places that keep the CPUs of a replica busy, and limits on connections
// and watches that only an attack or a fault should reach.
func DefaultLimits() Limits {
	return Limits{
		RequestTimeout: DefaultRequestTimeout, RequestsInFlight: 400, MutatingRequestsInFlight: 200, RequestsPerCPU: 12, Connections: 10_000, Watches: 20_000,
		HistoryBytes: 128 << 20,
	}
}

// DefaultRequestTimeout is upstream's default.
const DefaultRequestTimeout = 60 * time.Second

// ApplyTo sets the limits that upstream's handlers enforce.
func (l Limits) ApplyTo(c *genericapiserver.Config) {
	c.RequestTimeout = l.RequestTimeout
	c.MaxRequestsInFlight = l.RequestsInFlight
	c.MaxMutatingRequestsInFlight = l.MutatingRequestsInFlight
	c.GoawayChance = l.GoawayChance
	c.HSTSDirectives = l.HSTS
}

// OfConnections returns the limits on connections. This process itself needs none: see package loopback.
func (l Limits) OfConnections() connections.Limits {
	return connections.Limits{Total: l.Connections, PerClient: l.ConnectionsPerClient}
}

// maxWaiting is how many requests of clients may wait for a place. One tenant alone may have half of them wait. Each
// takes some tens of KiB of memory.
const maxWaiting = 2048

// Places returns how many places for requests there are, or 0 for no limit.
func (l Limits) Places() int {
	most := l.RequestsInFlight + l.MutatingRequestsInFlight
	perCPU := l.RequestsPerCPU * cmp.Or(l.CPUs, runtime.GOMAXPROCS(0))
	if most == 0 || perCPU == 0 {
		return max(most, perCPU)
	}
	return min(most, perCPU)
}
