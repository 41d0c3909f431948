// Package logicalcluster makes new logical clusters usable, and empties deleted ones before it removes their finalizer.
package logicalcluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name = "logicalcluster"
	// There are many workers, because emptying a cluster is mostly waiting for consistent lists.
	workers = 32
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type controller struct {
	*loop.Loop[logicalcluster.Name]
	clients   controllers.Clients
	informers controllers.Informers
	// everything are all resources of which no object may be left before the LogicalCluster goes.
	everything []controllers.Resource
	holding    func(context.Context, []schema.GroupVersionResource) ([]schema.GroupVersionResource, error)
	moves      controllers.Moves
	baseURL    string
	shard      string
	others     *controllers.Shards
	writes     writes
	ownerless  controllers.Waits[logicalcluster.Name]
	departed   controllers.Waits[logicalcluster.Name]
	followers  followers
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{clients: deps.Clients, informers: deps.Informers, holding: deps.Holding, moves: deps.Moves, baseURL: deps.BaseURL, shard: deps.Shard, others: deps.Others()}
	if c.holding == nil {
		c.holding = c.mayHold
	}
	for _, r := range deps.Resources {
		if r.GVR.GroupResource() != corev1alpha1.Resource("logicalclusters") {
			c.everything = append(c.everything, r)
		}
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(func(cluster logicalcluster.Name) bool {
		lc, ok := c.cached(cluster)
		return ok && c.due(lc)
	})
	loop.WatchDue(c.Loop, deps.Informers.LogicalClusters, func(lc *corev1alpha1.LogicalCluster) []logicalcluster.Name {
		return []logicalcluster.Name{clusters.KeyOf(lc).Cluster}
	}, c.due)
	loop.FollowAll(c.Loop, deps.Informers.LogicalClusters, c.children)
	loop.FollowAll(c.Loop, deps.Informers.Workspaces, c.related)
	loop.Follow(c.Loop, deps.Informers.Namespaces, func(n *corev1.Namespace) []logicalcluster.Name {
		if !slices.Contains(clusters.Namespaces, n.Name) {
			return nil
		}
		return []logicalcluster.Name{clusters.KeyOf(n).Cluster}
	})
	for _, inf := range deps.Informers.Metadata {
		loop.Follow(c.Loop, inf, c.dying)
	}
	loop.Follow(c.Loop, deps.Informers.CustomObjects, func(obj *clusters.CustomObject) []logicalcluster.Name {
		return c.dying(clusters.Metadata(obj))
	})
	loop.WatchForeign(c.Loop, c.others.Workspaces, func(_ string, ws *tenancyv1alpha1.Workspace) []logicalcluster.Name {
		if ws.Spec.Cluster == "" {
			return nil
		}
		return []logicalcluster.Name{logicalcluster.Name(ws.Spec.Cluster)}
	})
	c.On(loop.Source[logicalcluster.Name]{Synced: deps.Informers.LogicalClusters.Synced(), Register: func() (remove func()) {
		return c.others.Contact.Follow(func(shard string, heard bool) {
			if !heard {
				return
			}
			// New clusters of its Workspaces may wait for it, and those that are deleted.
			for _, lc := range c.informers.LogicalClusters.ByIndex(clusters.ByOwnerShard, shard) {
				if !c.owned(lc) || lc.DeletionTimestamp != nil {
					c.Add(clusters.KeyOf(lc).Cluster)
				}
			}
		})
	}})
	return c, nil
}

// mayHold is for tests without Deps.Holding: a cluster may have objects of any resource, and has the custom objects
// that the cache shows.
func (c *controller) mayHold(ctx context.Context, of []schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	cluster, _ := clusters.From(ctx)
	return slices.DeleteFunc(slices.Clone(of), func(r schema.GroupVersionResource) bool {
		return r == clusters.CustomObjects && len(c.informers.CustomObjects.List(cluster)) == 0
	}), nil
}

func isWorkspaces(r controllers.Resource) bool {
	return r.GVR.GroupResource() == tenancyv1alpha1.Resource("workspaces")
}

// isContent reports whether objects are deleted between Workspaces, which go first, and Namespaces. The LogicalCluster
// goes last.
func isContent(r controllers.Resource) bool {
	return !isWorkspaces(r) && r.GVR.GroupResource() != corev1.Resource("namespaces")
}

// due reports whether reconcile may have to write for a cluster, by the caches.
func (c *controller) due(lc *corev1alpha1.LogicalCluster) bool {
	if clusters.IsMoving(lc) || c.rehomed(lc) != nil {
		return true
	}
	if lc.DeletionTimestamp != nil {
		return slices.Contains(lc.Finalizers, clusters.ContentFinalizer) || heldByOthers(lc) != nil
	}
	return lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || !hasFinalizer(lc) || len(c.missing(lc)) > 0 || !c.owned(lc)
}

// related returns the cluster that a Workspace owns, and the cluster that has the Workspace if that one waits for its
// children.
func (c *controller) related(ws *tenancyv1alpha1.Workspace) []logicalcluster.Name {
	parent := clusters.KeyOf(ws).Cluster
	var keys []logicalcluster.Name
	if lc, ok := c.cached(parent); ok && lc.DeletionTimestamp != nil {
		keys = append(keys, parent)
	}
	if ws.Spec.Cluster != "" {
		keys = append(keys, logicalcluster.Name(ws.Spec.Cluster))
	}
	return keys
}

// dying returns the object's cluster if it is being emptied: it may wait for this change.
func (c *controller) dying(obj *metav1.PartialObjectMetadata) []logicalcluster.Name {
	cluster := clusters.KeyOf(obj).Cluster
	lc, ok := c.cached(cluster)
	if !ok || lc.DeletionTimestamp == nil {
		return nil
	}
	return []logicalcluster.Name{cluster}
}

// reconcile takes one cluster as far as it can get now. A conflict is no error: the informer has delivered the change,
// or will, and queues the key again.
func (c *controller) reconcile(ctx context.Context, cluster logicalcluster.Name) error {
	lc, ok := c.cached(cluster)
	if !ok || !clusters.HasMoved(lc) {
		c.departed.Forget(cluster)
		c.followers.forget(cluster)
	}
	if c.writes.unseen(cluster, lc) || !ok {
		c.ownerless.Forget(cluster)
		return nil
	}
	ctx = clusters.With(ctx, cluster)
	work := c.provide
	switch {
	case clusters.IsMoving(lc):
		work = c.move
	case lc.DeletionTimestamp != nil:
		work = c.empty
	}
	if out := c.rehomed(lc); out != nil && !clusters.IsMoving(lc) {
		work = func(ctx context.Context, _ *corev1alpha1.LogicalCluster) error { return c.rehome(ctx, out) }
	}
	err := work(ctx, lc)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Logical cluster changed meanwhile", "cluster", cluster)
		return nil
	}
	if err != nil {
		return fmt.Errorf("logical cluster %s: %w", cluster, err)
	}
	return nil
}

// provide makes a cluster usable and keeps it so. cached is the LogicalCluster in the cache.
func (c *controller) provide(ctx context.Context, cached *corev1alpha1.LogicalCluster) error {
	lc := cached
	if c.awaitsOwner(lc) {
		return nil
	}
	orphaned, err := c.orphaned(ctx, lc)
	if err != nil {
		return err
	}
	if orphaned {
		klog.FromContext(ctx).Info("Deleting a logical cluster whose owner is gone", "cluster", clusters.KeyOf(lc).Cluster, "owner", lc.Spec.Owner)
		return controllers.IgnoreNotFound(c.clients.LogicalClusters.Delete(ctx, lc.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lc.UID, ResourceVersion: &lc.ResourceVersion},
		}))
	}
	if out := guarded(lc); out != nil {
		if lc, err = c.clients.LogicalClusters.Update(ctx, out, metav1.UpdateOptions{FieldManager: name}); err != nil {
			return fmt.Errorf("add finalizer: %w", err)
		}
	}
	for provided := false; ; provided = true {
		if out := advanced(lc, c.baseURL, provided); out != nil {
			if lc, err = c.clients.LogicalClusters.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name}); err != nil {
				return fmt.Errorf("update status: %w", err)
			}
			c.writes.add(lc)
		}
		if provided {
			return nil
		}
		missing := c.missing(lc)
		if len(missing) > 0 && lc == cached {
			if live, err := c.live(ctx, lc); live == nil || live.ResourceVersion != lc.ResourceVersion {
				return err // the cluster may have gone, and its namespaces with it
			}
		}
		if err := c.createNamespaces(ctx, missing); err != nil {
			return err
		}
		if err := c.bindCreator(ctx, lc); err != nil {
			return err
		}
	}
}

// missing returns the namespaces that the cluster lacks by the cache.
func (c *controller) missing(lc *corev1alpha1.LogicalCluster) []string {
	if clusters.HasBuiltIn(lc) {
		return nil
	}
	cluster := clusters.KeyOf(lc).Cluster
	return slices.DeleteFunc(slices.Clone(clusters.Namespaces), func(ns string) bool {
		_, ok := c.informers.Namespaces.Get(clusters.Key{Cluster: cluster, Name: ns})
		return ok
	})
}

func (c *controller) createNamespaces(ctx context.Context, names []string) error {
	for _, ns := range names {
		obj := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		if _, err := c.clients.Kube.CoreV1().Namespaces().Create(ctx, obj, metav1.CreateOptions{FieldManager: name}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", ns, err)
		}
	}
	return nil
}

// ownerIsLate is for how long the cache may lack the Workspace of a cluster that is Ready, before the server is asked
// for it. Both may have come in one transaction, or gone, and one of the two events is first.
const ownerIsLate = 5 * time.Second

// awaitsOwner reports whether the Workspace of lc is about to come, or lc about to go. It queues the cluster again.
func (c *controller) awaitsOwner(lc *corev1alpha1.LogicalCluster) bool {
	cluster := clusters.KeyOf(lc).Cluster
	if lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || c.owned(lc) {
		c.ownerless.Forget(cluster)
		return false
	}
	if c.ownerless.Overdue(cluster, ownerIsLate) {
		return false
	}
	c.AddAfter(cluster, ownerIsLate)
	return true
}

// orphaned reports whether lc belongs to a Workspace that does not exist any more. It asks the server unless the cache
// has the Workspace.
//
// A Workspace of another shard is looked for once, right after its cluster was created, and then never again: if that
// shard was restored from a backup, its absence says nothing (I10).
func (c *controller) orphaned(ctx context.Context, lc *corev1alpha1.LogicalCluster) (bool, error) {
	if c.owned(lc) {
		return false, nil
	}
	owner, _ := ownerOf(lc)
	ws, err := c.owner(ctx, lc, owner)
	if err != nil {
		return false, err
	}
	// A Workspace of another shard that is being deleted takes a cluster that was just created along: nobody else
	// may see that.
	return ws == nil || ws.UID != lc.Spec.Owner.UID || c.elsewhere(lc) && ws.DeletionTimestamp != nil, nil
}

// owned reports whether lc belongs to no Workspace, or to one that the cache has.
func (c *controller) owned(lc *corev1alpha1.LogicalCluster) bool {
	owner, ok := ownerOf(lc)
	if !ok {
		return true
	}
	if c.elsewhere(lc) {
		return lc.Status.Phase != "" && lc.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling
	}
	ws, ok := c.informers.Workspaces.Get(owner)
	return ok && ws.UID == lc.Spec.Owner.UID
}

// elsewhere reports whether the Workspace of lc is in another shard.
func (c *controller) elsewhere(lc *corev1alpha1.LogicalCluster) bool {
	return clusters.ShardOf(lc, clusters.OwnerShardLabel, c.shard) != c.shard
}

// owner reads the Workspace of lc from the server of its shard. It returns nil if there is none.
func (c *controller) owner(ctx context.Context, lc *corev1alpha1.LogicalCluster, key clusters.Key) (ws *tenancyv1alpha1.Workspace, err error) {
	if c.elsewhere(lc) {
		ws, err = c.others.Live.Workspace(ctx, lc.Labels[clusters.OwnerShardLabel], key)
	} else {
		ws, err = c.clients.Workspaces.Get(clusters.With(ctx, key.Cluster), key.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get owner %s: %w", key, err)
	}
	return ws, nil
}

// live reads the LogicalCluster from the server. It returns nil if lc has gone, even if there is a new one of its name.
func (c *controller) live(ctx context.Context, lc *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error) {
	live, err := c.clients.LogicalClusters.Get(ctx, lc.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != lc.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get: %w", err)
	}
	return live, nil
}

func (c *controller) cached(cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, bool) {
	return c.informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
}

var _ controllers.Reporter = (*controller)(nil)
