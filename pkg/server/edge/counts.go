package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/regent-project/regent/pkg/server/fairness"
)

// countIn returns what is told of each answered request: it counts requests of clients in a tally, by logical cluster.
// Requests for endpoints of the process do not count, and those for clusters that no cache knows count together.
func (f *flows) countIn(tally *fairness.Tally) func(*http.Request, int) {
	return func(req *http.Request, code int) {
		name, inCluster := f.tenantName(req.Context())
		if !inCluster {
			return
		}
		if code == 0 {
			code = http.StatusOK // net/http's, if a handler writes nothing
		}
		tally.Add(name, time.Now(), fairness.Answer{Status: code, Write: isWrite(req.Method)})
	}
}

// holdIn returns what is told how long requests have held places.
func (f *flows) holdIn(tally *fairness.Tally) func(context.Context, time.Duration) {
	return func(ctx context.Context, held time.Duration) {
		if name, inCluster := f.tenantName(ctx); inCluster {
			tally.Hold(name, held)
		}
	}
}

// tenantName returns the name under which the request in ctx counts.
func (f *flows) tenantName(ctx context.Context) (name string, inCluster bool) {
	cluster, inCluster := f.clusters.Cached(ctx)
	if cluster == "" {
		return tenantUnknown, inCluster
	}
	return cluster.String(), inCluster
}

func isWrite(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}
