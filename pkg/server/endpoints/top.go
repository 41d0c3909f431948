package endpoints

import (
	"net/http"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/status"
)

// top says what was asked for, by logical cluster.
type top struct {
	shard, replica string
	tally          *fairness.Tally
	clusters       *clusters.Informer[*corev1alpha1.LogicalCluster]
}

// describe is a description.
func (t *top) describe(*http.Request) (any, error) {
	busiest, all := t.tally.Read()
	out := status.Top{Shard: t.shard, Replica: t.replica, Observed: time.Now(), All: countsOf(all), Clusters: make([]status.ClusterCounts, 0, len(busiest))}
	for _, c := range busiest {
		out.Clusters = append(out.Clusters, status.ClusterCounts{Cluster: c.Cluster, Path: t.path(c.Cluster), Since: c.Since, RequestCounts: countsOf(c)})
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

func countsOf(c fairness.Counts) status.RequestCounts {
	return status.RequestCounts{Requests: c.Requests, Writes: c.Writes, Refused: c.Refused, Failed: c.Failed, TooMany: c.TooMany, PlaceSeconds: c.Held.Seconds()}
}
