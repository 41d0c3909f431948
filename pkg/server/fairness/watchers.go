package fairness

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// perWatcher is how long a write keeps one place for each watch that is told of it: to send an event takes some 50 us
// of a CPU, and a CPU has 12 places.
const perWatcher = 600 * time.Microsecond

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

// lingers returns how long a request keeps its place after it has been answered.
func (c *Control) lingers(ctx context.Context, info *request.RequestInfo) time.Duration {
	if info == nil || !info.IsResourceRequest {
		return 0
	}
	switch info.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return time.Duration(c.watchers.count(watchedBy(c.Cluster(ctx), info))) * perWatcher
	}
	return 0
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
