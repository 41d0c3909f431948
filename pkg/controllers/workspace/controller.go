// Package workspace creates the logical cluster of every Workspace, reports the cluster's state in the Workspace's
// status, and removes the Workspace's finalizer when the cluster has gone.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name    = "workspace"
	workers = 16
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type workspaceClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*tenancyv1alpha1.Workspace, error)
	Update(ctx context.Context, obj *tenancyv1alpha1.Workspace, opts metav1.UpdateOptions) (*tenancyv1alpha1.Workspace, error)
	UpdateStatus(ctx context.Context, obj *tenancyv1alpha1.Workspace, opts metav1.UpdateOptions) (*tenancyv1alpha1.Workspace, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

type logicalClusterClient interface {
	Create(ctx context.Context, obj *corev1alpha1.LogicalCluster, opts metav1.CreateOptions) (*corev1alpha1.LogicalCluster, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1alpha1.LogicalCluster, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

type controller struct {
	*loop.Loop[clusters.Key]
	workspaces      *clusters.Informer[*tenancyv1alpha1.Workspace]
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	workspace       workspaceClient
	logicalCluster  logicalClusterClient
	stored          func(context.Context) (*corev1alpha1.LogicalCluster, error) // may be nil
	baseURL         string
	others          *controllers.Shards
	shards          *shards
	waiting         waiting
	waits           controllers.Waits[clusters.Key]
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		workspaces:      deps.Informers.Workspaces,
		logicalClusters: deps.Informers.LogicalClusters,
		workspace:       deps.Clients.Workspaces,
		logicalCluster:  deps.Clients.LogicalClusters,
		stored:          deps.LogicalCluster,
		baseURL:         deps.BaseURL,
		others:          deps.Others(),
	}
	c.shards = newShards(deps.Shard, deps.Informers, c.others)
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(func(key clusters.Key) bool {
		ws, ok := c.workspaces.Get(key)
		return ok && c.due(ws)
	})
	loop.WatchDue(c.Loop, c.workspaces, func(ws *tenancyv1alpha1.Workspace) []clusters.Key {
		return []clusters.Key{clusters.KeyOf(ws)}
	}, c.due)
	loop.FollowAll(c.Loop, c.logicalClusters, c.affected)
	loop.WatchForeign(c.Loop, c.others.LogicalClusters, func(_ string, lc *corev1alpha1.LogicalCluster) []clusters.Key { return owners(lc) })
	c.followShards(deps.Informers.Shards)
	return c, nil
}

// due reports whether reconcile may have to write for a Workspace, by the caches.
func (c *controller) due(ws *tenancyv1alpha1.Workspace) bool {
	w := c.worldOf(ws)
	_, waits := w.waits() // a new leader has to know who waits
	return waits || w.awaits() || w.misses() || decide(w) != nothing
}

// followShards queues what waits for a shard when something changes about shards.
func (c *controller) followShards(members clusters.Cache[*corev1alpha1.Shard]) {
	all := func(*corev1alpha1.Shard) []clusters.Key { return c.waiting.take("") }
	loop.FollowAll(c.Loop, members, all)
	loop.WatchForeign(c.Loop, c.others.Members, func(_ string, s *corev1alpha1.Shard) []clusters.Key { return all(s) })
	again := func(waiting []clusters.Key) {
		for _, key := range waiting {
			c.Add(key)
		}
	}
	c.On(loop.Source[clusters.Key]{Synced: members.Synced(), Register: func() (remove func()) {
		return c.others.Contact.Follow(func(shard string, _ bool) { again(append(c.waiting.take(shard), c.waiting.take("")...)) })
	}})
	c.On(loop.Source[clusters.Key]{Synced: members.Synced(), Register: func() (remove func()) {
		return c.others.Contact.FollowSteady(func() { again(c.waiting.take("")) })
	}})
}

// affected returns the Workspace that owns lc, and the Workspaces in lc's cluster that have no cluster yet because they
// need lc first.
func (c *controller) affected(lc *corev1alpha1.LogicalCluster) []clusters.Key {
	keys := owners(lc)
	for _, ws := range c.workspaces.List(clusters.KeyOf(lc).Cluster) {
		if !controllers.HasBegun(ws) {
			keys = append(keys, clusters.KeyOf(ws))
		}
	}
	return keys
}

// owners returns the Workspace that owns lc, if one does.
func owners(lc *corev1alpha1.LogicalCluster) []clusters.Key {
	if owner := lc.Spec.Owner; owner != nil && owner.Resource == "workspaces" {
		return []clusters.Key{{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}}
	}
	return nil
}

// reconcile takes steps until it has to wait. A conflict is no error: the informer has delivered the newer Workspace,
// or will, and queues the key again.
func (c *controller) reconcile(ctx context.Context, key clusters.Key) error {
	ctx = clusters.With(ctx, key.Cluster)
	w, ok := c.world(key)
	if !ok {
		c.waits.Forget(key)
		return nil
	}
	if (w.awaits() || w.misses()) && !w.overdue {
		c.AddAfter(key, overdueAfter)
	}
	for last := nothing; ; {
		step := decide(w)
		if shard, waits := w.waits(); waits {
			c.waiting.add(shard, key)
			if again, ok := c.world(key); ok && decide(again) != step { // it has come meanwhile
				c.Add(key)
			}
		}
		if step == last && step != nothing {
			return fmt.Errorf("%s workspace %s: the server accepted it and changed nothing", step, key)
		}
		last = step
		next, err := c.take(ctx, step, w)
		switch {
		case apierrors.IsConflict(err):
			klog.FromContext(ctx).V(4).Info("Workspace changed meanwhile", "workspace", key, "step", step)
			return nil
		case err != nil:
			return fmt.Errorf("%s workspace %s: %w", step, key, err)
		case next == nil:
			return nil
		}
		w = *next
	}
}

// world returns what the caches show. It returns false if they show no Workspace.
func (c *controller) world(key clusters.Key) (world, bool) {
	ws, ok := c.workspaces.Get(key)
	if !ok {
		return world{}, false
	}
	return c.worldOf(ws), true
}

func (c *controller) worldOf(ws *tenancyv1alpha1.Workspace) world {
	key := clusters.KeyOf(ws)
	w := world{workspace: ws, parent: c.cached(key.Cluster), own: c.shards.own, shard: clusters.ShardOf(ws, clusters.ShardLabel, c.shards.own)}
	cluster := logicalcluster.Name(ws.Spec.Cluster)
	if w.elsewhere = w.shard != c.shards.own; w.elsewhere {
		w.heard = c.others.Contact.Hears(w.shard)
		w.logicalCluster, _ = c.others.LogicalClusters.Get(w.shard, clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	} else {
		w.logicalCluster = c.cached(cluster)
	}
	if w.owned() {
		w.movedTo = clusters.MovedTo(w.logicalCluster).Shard
	}
	if cluster != "" && w.movedTo == "" && ws.DeletionTimestamp == nil {
		w.movedTo = ws.Annotations[clusters.ReturnAnnotation]
	}
	if w.awaits() || w.misses() {
		w.overdue = c.waits.Overdue(key, overdueAfter)
	} else {
		c.waits.Forget(key)
	}
	if cluster == "" && ws.DeletionTimestamp == nil && ws.Spec.Mount == nil {
		w.placement = c.placement(w)
	}
	return w
}

// placement returns where the cluster of a Workspace goes that has none, by the caches.
func (c *controller) placement(w world) placement {
	shard, cluster := controllers.Adoption(w.workspace)
	if cluster.Empty() {
		return place(w.workspace, c.shards.candidates())
	}
	lc, _ := c.others.LogicalClusters.Get(shard, clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	return adoption(w.workspace, c.shards.own, childPath(w), c.others.Contact.Hears(shard), lc)
}

// take takes a step and returns the world after it, or nil if the next step has to wait for an event.
func (c *controller) take(ctx context.Context, s step, w world) (*world, error) {
	switch s {
	case relocate:
		return nil, c.relocate(ctx, w)
	case schedule:
		return c.schedule(ctx, w)
	case create:
		return c.create(ctx, w)
	case report:
		if of := w.placement; of.shard == "" && of.details != "" {
			klog.FromContext(ctx).Info("No shard fits a workspace: uncordon one, raise a capacity, or add a shard with the labels that it wants",
				"workspace", w.workspace.Name, "cluster", clusters.KeyOf(w.workspace).Cluster, "shards", of.details)
		}
		_, err := c.workspace.UpdateStatus(ctx, reported(w), metav1.UpdateOptions{FieldManager: name})
		return nil, controllers.IgnoreNotFound(err)
	case remove:
		lc := w.logicalCluster
		err := c.logicalCluster.Delete(clusters.With(ctx, clusters.KeyOf(lc).Cluster), lc.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lc.UID, ResourceVersion: &lc.ResourceVersion},
		})
		return nil, controllers.IgnoreNotFound(err)
	case confirm:
		return c.confirm(ctx, w)
	case follow:
		ws := w.workspace
		return nil, controllers.IgnoreNotFound(c.workspace.Delete(ctx, ws.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &ws.UID, ResourceVersion: &ws.ResourceVersion},
		}))
	case release:
		_, err := c.workspace.Update(ctx, released(w.workspace), metav1.UpdateOptions{FieldManager: name})
		return nil, controllers.IgnoreNotFound(err)
	default:
		return nil, nil
	}
}

// schedule assigns a cluster. One that there is already is read first: the cache may be late.
func (c *controller) schedule(ctx context.Context, w world) (*world, error) {
	if adopted := w.placement.adopted; !adopted.Empty() {
		live, err := c.others.Live.LogicalCluster(ctx, w.placement.shard, adopted)
		if err != nil || adoption(w.workspace, c.shards.own, childPath(w), true, live).adopted.Empty() {
			return nil, controllers.IgnoreNotFound(err) // its event comes
		}
	}
	updated, err := c.workspace.Update(ctx, scheduled(w, c.baseURL, newClusterName().String()), metav1.UpdateOptions{FieldManager: name})
	if err != nil {
		return nil, controllers.IgnoreNotFound(err)
	}
	if of := w.placement; of.details != "" {
		klog.FromContext(ctx).Info("A workspace got a shard", "workspace", updated.Name, "cluster", updated.Spec.Cluster, "shards", of.details)
	}
	w.workspace, w.confirmed = updated, false
	w.shard = clusters.ShardOf(updated, clusters.ShardLabel, c.shards.own)
	if w.elsewhere = w.shard != c.shards.own; w.elsewhere {
		c.shards.assign(w.shard)
		return nil, nil // that shard sees it, and makes the cluster
	}
	return &w, nil
}

// arrivalInterval is how often a shard is asked whether it has a cluster that has moved there.
const arrivalInterval = time.Second

// relocate writes to which shard a cluster has moved, once that has it.
func (c *controller) relocate(ctx context.Context, w world) error {
	cluster := logicalcluster.Name(w.workspace.Spec.Cluster)
	lc := c.cached(cluster)
	if w.movedTo != w.own {
		var err error
		if lc, err = c.others.Live.LogicalCluster(ctx, w.movedTo, cluster); err != nil {
			klog.FromContext(ctx).V(4).Info("A shard does not say yet that it has a logical cluster that has moved there", "cluster", cluster, "shard", w.movedTo, "err", err)
			lc = nil
		}
	}
	if lc == nil || clusters.IsComing(lc) || clusters.HasMoved(lc) || !controllers.Owns(w.workspace, lc) {
		c.AddAfter(clusters.KeyOf(w.workspace), arrivalInterval)
		return nil
	}
	_, err := c.workspace.Update(ctx, relocated(w), metav1.UpdateOptions{FieldManager: name})
	return controllers.IgnoreNotFound(err)
}

// create counts on the server to refuse the cluster of a Workspace that has gone, or is being deleted, with a conflict:
// a stale cache may show one that is long gone, and nobody would delete the cluster that is created for it.
func (c *controller) create(ctx context.Context, w world) (*world, error) {
	target := clusters.With(ctx, logicalcluster.Name(w.workspace.Spec.Cluster))
	lc, err := c.logicalCluster.Create(target, controllers.NewLogicalCluster(w.workspace, ""), metav1.CreateOptions{FieldManager: name})
	if apierrors.IsAlreadyExists(err) {
		lc, err = c.logicalCluster.Get(target, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	w.logicalCluster, w.confirmed = lc, true
	return &w, nil
}

// confirm reads the LogicalCluster from the server. If the Workspace has none yet, it reads the parent's.
func (c *controller) confirm(ctx context.Context, w world) (*world, error) {
	at, found := clusters.KeyOf(w.workspace).Cluster, &w.parent
	if bound := logicalcluster.Name(w.workspace.Spec.Cluster); !bound.Empty() {
		at, found = bound, &w.logicalCluster
	}
	lc, err := c.liveLogicalCluster(ctx, w, at)
	if moved, ok := errors.AsType[*clusters.MovedError](err); ok && w.workspace.Spec.Cluster == at.String() {
		w.movedTo = moved.To.Shard
		return &w, nil
	}
	if apierrors.IsNotFound(err) {
		lc, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	*found, w.confirmed = lc, true
	return &w, nil
}

// liveLogicalCluster reads a LogicalCluster from its shard.
func (c *controller) liveLogicalCluster(ctx context.Context, w world, at logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if w.elsewhere && w.workspace.Spec.Cluster == at.String() {
		return c.others.Live.LogicalCluster(ctx, w.shard, at)
	}
	if ctx = clusters.With(ctx, at); c.stored != nil {
		return c.stored(ctx)
	}
	return c.logicalCluster.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
}

func (c *controller) cached(cluster logicalcluster.Name) *corev1alpha1.LogicalCluster {
	if cluster.Empty() {
		return nil
	}
	lc, _ := c.logicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	return lc
}

var _ controllers.Reporter = (*controller)(nil)
