package logicalcluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// movingInterval is how often a cluster is looked at that comes, leaves, or has moved: nothing tells that a freeze has
// ended, or what another shard has done.
const movingInterval = 5 * time.Second

// vacateAfter is how long a cluster that has moved is kept at least: requests that were let in before, and writes that
// waited, find out where it is by what is stored of it. Without that they would be told that there is no such cluster.
const vacateAfter = 5 * time.Second

// move ends what is left of a move, once whoever has begun it does not go on.
func (c *controller) move(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	cluster := clusters.KeyOf(lc).Cluster
	c.ownerless.Forget(cluster)
	if c.moves == nil {
		return nil
	}
	end := c.moves.Remain
	switch {
	case clusters.IsComing(lc):
		end = c.moves.End
	case clusters.HasMoved(lc):
		end = c.vacate
	}
	err := end(ctx, lc)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("A logical cluster is still on its way", "cluster", cluster, "reason", err)
		c.AddAfter(cluster, movingInterval)
		return nil
	}
	return err
}

// vacate removes what a cluster had here that has moved, once nothing here, and nobody else, leads to this shard any
// more: its new shard has it, its Workspace names that shard, and so do the clusters of its own workspaces.
func (c *controller) vacate(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	cluster, to := clusters.KeyOf(lc).Cluster, clusters.MovedTo(lc).Shard
	if !c.departed.Overdue(cluster, vacateAfter) {
		c.AddAfter(cluster, vacateAfter)
		return nil
	}
	left := c.hasLeft(ctx, lc, to)
	for _, ws := range c.informers.Workspaces.List(cluster) {
		if left = left && c.hasFollowed(ctx, ws, to); !left {
			break
		}
	}
	if !left {
		c.AddAfter(cluster, movingInterval)
		return nil
	}
	return c.moves.Vacate(ctx, lc)
}

// followers are Workspaces of clusters that have moved away, whose own clusters have followed: by the cluster that has
// them, and uid. Nobody asks for them again, each five seconds, while one of thousands has not followed.
type followers struct {
	mu  sync.Mutex
	all map[logicalcluster.Name]map[types.UID]struct{}
}

func (f *followers) has(ws *tenancyv1alpha1.Workspace) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.all[clusters.KeyOf(ws).Cluster][ws.UID]
	return ok
}

func (f *followers) add(ws *tenancyv1alpha1.Workspace) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := clusters.KeyOf(ws).Cluster
	if f.all == nil {
		f.all = map[logicalcluster.Name]map[types.UID]struct{}{}
	}
	if f.all[in] == nil {
		f.all[in] = map[types.UID]struct{}{}
	}
	f.all[in][ws.UID] = struct{}{}
}

// forget is called for a cluster that is gone, or is here.
func (f *followers) forget(in logicalcluster.Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, in)
}

// hasFollowed reports whether the cluster of a Workspace knows that the Workspace is on another shard now.
func (c *controller) hasFollowed(ctx context.Context, ws *tenancyv1alpha1.Workspace, to string) bool {
	at := clusters.HomeOf(ws, c.shard)
	if at == "" {
		return true
	}
	child, cluster := c.childOf(ws), logicalcluster.Name(ws.Spec.Cluster)
	if at != c.shard {
		// That shard tells of those whose Workspace is here, as they know.
		heard, ok := c.others.LogicalClusters.Get(at, clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
		if ok && !clusters.HasMoved(heard) && controllers.Owns(ws, heard) {
			return false
		}
		if c.followers.has(ws) {
			return true
		}
		there, err := c.others.Live.LogicalCluster(ctx, at, cluster)
		if _, moves := errors.AsType[*clusters.MovedError](err); moves {
			return true // by itself
		}
		if apierrors.IsNotFound(err) { // it is gone
			c.followers.add(ws)
			return true
		}
		if err != nil {
			return false
		}
		child = there
	}
	if child == nil || !controllers.Owns(ws, child) || clusters.ShardOf(child, clusters.OwnerShardLabel, at) == to {
		if at != c.shard { // those here cost nothing to look at
			c.followers.add(ws)
		}
		return true
	}
	c.Add(clusters.KeyOf(child).Cluster)
	return false
}

// hasLeft reports whether another shard has a cluster, which its Workspace names; or, if there is no Workspace any
// more, whether the shard to which it has moved does not keep it. If that cannot be known, or a shard was restored and
// has it as it was before, or has lost it, the cluster stays: it may be the last copy.
func (c *controller) hasLeft(ctx context.Context, lc *corev1alpha1.LogicalCluster, to string) bool {
	owner, ok := ownerOf(lc)
	if !ok {
		return false
	}
	ws, err := c.owner(ctx, lc, owner)
	if err != nil { // its shard may be down, or the Workspace move itself
		klog.FromContext(ctx).V(4).Info("The Workspace of a logical cluster that has moved cannot be read", "cluster", clusters.KeyOf(lc).Cluster, "err", err)
		return false
	}
	isDeleted := ws == nil || ws.UID != lc.Spec.Owner.UID
	if !isDeleted {
		to = clusters.ShardOf(ws, clusters.ShardLabel, clusters.ShardOf(lc, clusters.OwnerShardLabel, c.shard))
	}
	if to == c.shard {
		return false
	}
	there, err := c.others.Live.LogicalCluster(ctx, to, clusters.KeyOf(lc).Cluster)
	if _, movedOn := errors.AsType[*clusters.MovedError](err); movedOn {
		return false
	}
	if apierrors.IsNotFound(err) {
		return isDeleted
	}
	return err == nil && there.UID == lc.UID && !clusters.IsComing(there) && clusters.EpochOf(there) > clusters.EpochOf(lc)
}

// childOf returns the cluster of a Workspace, if it is on this shard.
func (c *controller) childOf(ws *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
	child, ok := c.cached(logicalcluster.Name(ws.Spec.Cluster))
	if !ok || !controllers.Owns(ws, child) || clusters.HasMoved(child) {
		return nil
	}
	return child
}

// children returns the clusters of a cluster's workspaces, if it has come or gone with them.
func (c *controller) children(lc *corev1alpha1.LogicalCluster) (keys []logicalcluster.Name) {
	if !clusters.HasMoved(lc) && len(clusters.OriginsOf(lc)) == 0 {
		return nil
	}
	for _, ws := range c.informers.Workspaces.List(clusters.KeyOf(lc).Cluster) {
		if child := c.childOf(ws); child != nil {
			keys = append(keys, clusters.KeyOf(child).Cluster)
		}
	}
	return keys
}

// rehomed returns lc with the shard that has its Workspace by now, because the Workspace's cluster has come here or has
// moved away. Nil: nothing has changed, as far as this shard knows.
func (c *controller) rehomed(lc *corev1alpha1.LogicalCluster) *corev1alpha1.LogicalCluster {
	owner, ok := ownerOf(lc)
	if !ok {
		return nil
	}
	parent, ok := c.cached(owner.Cluster)
	ws, there := c.informers.Workspaces.Get(owner)
	if !ok || !there || clusters.IsComing(parent) || ws.UID != lc.Spec.Owner.UID {
		return nil
	}
	at := c.shard
	if clusters.HasMoved(parent) {
		at = clusters.MovedTo(parent).Shard
	}
	if at == clusters.ShardOf(lc, clusters.OwnerShardLabel, c.shard) {
		return nil
	}
	out := lc.DeepCopy()
	if at == c.shard {
		delete(out.Labels, clusters.OwnerShardLabel)
	} else {
		metav1.SetMetaDataLabel(&out.ObjectMeta, clusters.OwnerShardLabel, at)
	}
	return out
}

// rehome writes which shard has the Workspace of a cluster by now.
func (c *controller) rehome(ctx context.Context, out *corev1alpha1.LogicalCluster) error {
	_, err := c.clients.LogicalClusters.Update(ctx, out, metav1.UpdateOptions{FieldManager: name})
	return controllers.IgnoreNotFound(err)
}
