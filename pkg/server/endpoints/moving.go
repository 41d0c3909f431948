package endpoints

import (
	"cmp"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/status"
)

// moves returns the logical clusters that come to this shard, may leave it, or have left it. Nil: there are none.
func (d *Describer) moves() *status.Moves {
	var all []status.Move
	for _, lc := range d.Informers.LogicalClusters.ByIndex(controllers.ByMoving, controllers.IsMovingValue) {
		all = append(all, moveOf(lc))
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b status.Move) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Cluster, b.Cluster)) })
	return &status.Moves{Number: len(all), Oldest: all[:min(len(all), status.MostMoves)]}
}

func moveOf(lc *corev1alpha1.LogicalCluster) status.Move {
	out := status.Move{Cluster: logicalcluster.From(lc).String(), Path: lc.Annotations[core.LogicalClusterPathAnnotationKey], State: status.Leaves, Shard: clusters.Leaving(lc).Shard}
	since := lc.Annotations[clusters.LeftAnnotation]
	switch {
	case clusters.IsComing(lc):
		out.State, out.Shard, since = status.Comes, clusters.ComingFrom(lc).Shard, lc.Annotations[clusters.ComingAnnotation]
		out.Path = lc.Annotations[clusters.HiddenPathAnnotation]
	case clusters.HasMoved(lc):
		out.State, out.Shard = status.HasLeft, clusters.MovedTo(lc).Shard
	}
	if t, err := time.Parse(time.RFC3339, since); err == nil {
		out.Since = t
	}
	return out
}
