package server

import (
	"context"
	"net/http"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/status"
)

// countIn returns what is told of each answered request: it counts requests of clients in a tally, by logical cluster. Requests for endpoints of the process
// do not count, and those for clusters that no cache knows count together.
func (f *flows) countIn(tally *fairness.Tally) func(*http.Request, int) {
	return func(req *http.Request, code int) {
		name, inCluster := f.counted(req.Context())
		if !inCluster {
			return
		}
		if code == 0 {
			code = http.StatusOK // net/http's, if a handler writes nothing
		}
		tally.Add(name, time.Now(), fairness.Asked{Status: code, Write: isWrite(req.Method)})
	}
}

// holdIn returns what is told how long requests have held places.
func (f *flows) holdIn(tally *fairness.Tally) func(context.Context, time.Duration) {
	return func(ctx context.Context, held time.Duration) {
		if name, inCluster := f.counted(ctx); inCluster {
			tally.Hold(name, held)
		}
	}
}

// counted returns the name under which the request in ctx counts.
func (f *flows) counted(ctx context.Context) (name string, inCluster bool) {
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

// top says what was asked for, by logical cluster.
type top struct {
	shard, replica string
	tally          *fairness.Tally
	clusters       *clusters.Informer[*corev1alpha1.LogicalCluster]
}

// describe is a description.
func (t *top) describe(*http.Request) (any, error) {
	busiest, all := t.tally.Read()
	out := status.Top{Shard: t.shard, Replica: t.replica, Observed: time.Now(), All: askedOf(all), Clusters: make([]status.ClusterAsked, 0, len(busiest))}
	for _, c := range busiest {
		out.Clusters = append(out.Clusters, status.ClusterAsked{Cluster: c.Cluster, Path: t.path(c.Cluster), Since: c.Since, Asked: askedOf(c)})
	}
	return out, nil
}

// path returns the path of a cluster, or nothing if this process does not know it.
func (t *top) path(cluster string) string {
	lc, ok := t.clusters.Get(clusters.Key{Cluster: logicalcluster.Name(cluster), Name: corev1alpha1.LogicalClusterName})
	if !ok {
		return ""
	}
	return lc.Annotations[core.LogicalClusterPathAnnotationKey]
}

func askedOf(c fairness.Counts) status.Asked {
	return status.Asked{Requests: c.Requests, Writes: c.Writes, Refused: c.Refused, Failed: c.Failed, TooMany: c.TooMany, PlaceSeconds: c.Held.Seconds()}
}
