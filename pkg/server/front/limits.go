package front

import (
	"strings"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/connections"
)

// Limits are the limits on clients. A client is a user: the one whom a certificate names, or of whose token a shard has
// said whose it is, as shards count (access.CountedAs), so that the service accounts of a logical cluster are one.
// Tokens that no shard has accepted count for their sender's address. Requests beyond a limit are answered with 429.
// They do not reach a shard.
type Limits struct {
	Connections connections.Limits
	// Requests is how many requests, without watches, may be under way. RequestsPerClient is the same for one
	// client. 0: no limit.
	Requests, RequestsPerClient int
	// WatchesPerClient is how many watches a client may have open. 0: no limit.
	WatchesPerClient int
}

// DefaultLimits returns limits that only an attack or a fault should reach.
func DefaultLimits() Limits {
	return Limits{Connections: connections.Limits{Total: 10_000}, Requests: 4_000, RequestsPerClient: 400, WatchesPerClient: 10_000}
}

// Limits that a request can reach, as metrics and messages name them.
const (
	limitRequests          = "requests"
	limitRequestsPerClient = "requests-per-client"
	limitWatchesPerClient  = "watches-per-client"
	limitCluster           = "requests-of-one-cluster"
)

// inflight counts what is under way. All methods may be called at any time on any goroutine.
type inflight struct {
	limits Limits

	mu       sync.Mutex
	requests int
	clients  map[string]use // those that have anything under way
	clusters map[string]int // requests by logical cluster
}

type use struct{ requests, watches int }

func newInflight(limits Limits) *inflight {
	return &inflight{limits: limits, clients: map[string]use{}, clusters: map[string]int{}}
}

// enter counts a request. If a limit is reached, it returns which. Otherwise leave must be called at the end of the
// request.
func (p *inflight) enter(client string, watch bool) (leave func(), limit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.clients[client]
	beyond := func(n, most int) bool { return most > 0 && n >= most }
	switch {
	case watch && beyond(has.watches, p.limits.WatchesPerClient):
		return nil, limitWatchesPerClient
	case !watch && beyond(p.requests, p.limits.Requests):
		return nil, limitRequests
	case !watch && beyond(has.requests, p.limits.RequestsPerClient):
		return nil, limitRequestsPerClient
	}
	p.add(client, watch, 1)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(client, watch, -1)
	}, ""
}

// enterCluster counts a request, which has entered, for its logical cluster, until leave is called. It returns false if
// the cluster has more requests under way than are free. So whoever has many users in one cluster does not take the
// places of others.
func (p *inflight) enterCluster(cluster string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if has := p.clusters[cluster]; p.limits.Requests > 0 && has > 0 && has > p.limits.Requests-p.requests {
		return nil, false
	}
	p.clusters[cluster]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.clusters[cluster]--; p.clusters[cluster] == 0 {
			delete(p.clusters, cluster)
		}
	}, true
}

// unknownClusters begins the budget of those that a client asks for and nobody knows: everybody can make up as many
// names as they like. No cluster has such a name.
const unknownClusters = "(unknown clusters) "

// budgetOf returns for which logical cluster a client's request counts that a shard is asked by a path, or nothing.
// However a cluster is spelt, it is one.
func (f *Front) budgetOf(path, client string) string {
	after, ok := strings.CutPrefix(path, "/clusters/")
	if !ok {
		return ""
	}
	spelt, _, _ := strings.Cut(after, "/")
	if at, ok := f.index.find(logicalcluster.NewPath(spelt)); ok {
		return at.cluster.String()
	}
	if name := logicalcluster.Name(spelt); name == clusters.Wildcard || clusters.IsSystem(name) {
		return spelt // each shard has its own
	}
	return unknownClusters + client
}

// add counts n more requests or watches. The caller holds mu.
func (p *inflight) add(client string, watch bool, n int) {
	has := p.clients[client]
	if watch {
		has.watches += n
	} else {
		has.requests += n
		p.requests += n
	}
	if has == (use{}) {
		delete(p.clients, client)
		return
	}
	p.clients[client] = has
}

// underWay returns how many requests and watches are under way.
func (p *inflight) underWay() (requests, watches int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, has := range p.clients {
		watches += has.watches
	}
	return p.requests, watches
}
