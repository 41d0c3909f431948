package fairness

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// perWatcher is how long a write keeps one place for each watch that is told of it: to send an event takes some 35 us
// of a CPU, and a CPU has 12 places. A tenant beside whom nobody has asked for aloneFor keeps it for perWatcherAlone:
// then half of the places, which is what a tenant alone has, stand for all CPUs.
const (
	perWatcher      = 400 * time.Microsecond
	perWatcherAlone = 200 * time.Microsecond
	aloneFor        = 10 * time.Second
)

// watchers counts the open watches of each resource of each tenant. It is ready for use.
type watchers struct {
	mu   sync.Mutex
	open map[watched]int
}

// watched is what is watched, in all namespaces: few tenants have many watches, and those that do mostly watch
// everything.
type watched struct{ tenant, group, resource string }

func watchedBy(tenant string, info *request.RequestInfo) watched {
	return watched{tenant, info.APIGroup, info.Resource}
}

// begin counts one more watch. forget must be called once.
func (w *watchers) begin(what watched) (forget func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[watched]int{}
	}
	w.open[what]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[what]--; w.open[what] == 0 {
			delete(w.open, what)
		}
	}
}

func (w *watchers) count(what watched) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[what]
}

// lingers returns how long a request of a tenant keeps its place after it has been answered.
func (c *Control) lingers(ctx context.Context, tenant string, info *request.RequestInfo) time.Duration {
	if info == nil || !info.IsResourceRequest {
		return 0
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return 0
	}
	watches, each := c.watchers.count(watchedBy(c.Cluster(ctx), info)), perWatcher
	if watches > 0 && c.Limiter.Alone(tenant, aloneFor) {
		each = perWatcherAlone
	}
	return time.Duration(watches) * each
}

// RegisterWatch implements flowcontrol.WatchTracker.
func (c *Control) RegisterWatch(req *http.Request) flowcontrol.ForgetWatchFunc {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Verb != "watch" {
		return nil
	}
	return c.watchers.begin(watchedBy(c.Cluster(req.Context()), info))
}

// GetInterestedWatchCount implements flowcontrol.WatchTracker. Upstream's estimate, which would ask for it, is not
// used.
func (c *Control) GetInterestedWatchCount(*request.RequestInfo) int { return 0 }
