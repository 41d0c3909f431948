// Package assignment makes, in this shard, the logical clusters of Workspaces that other shards have assigned to it. It
// deletes them when those Workspaces are deleted, and marks those that have lost their Workspace.
package assignment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
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
	name    = "assignment"
	workers = 16
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

// assigned is a logical cluster of this shard and the Workspace of another shard that it is for.
type assigned struct {
	shard     string
	workspace clusters.Key
	cluster   logicalcluster.Name
}

// LogicalCluster implements loop.Clustered.
func (a assigned) LogicalCluster() logicalcluster.Name { return a.cluster }

func (a assigned) String() string {
	return fmt.Sprintf("%s for %s of shard %s", a.cluster, a.workspace, a.shard)
}

type logicalClusterClient interface {
	Create(ctx context.Context, obj *corev1alpha1.LogicalCluster, opts metav1.CreateOptions) (*corev1alpha1.LogicalCluster, error)
	Update(ctx context.Context, obj *corev1alpha1.LogicalCluster, opts metav1.UpdateOptions) (*corev1alpha1.LogicalCluster, error)
	UpdateStatus(ctx context.Context, obj *corev1alpha1.LogicalCluster, opts metav1.UpdateOptions) (*corev1alpha1.LogicalCluster, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

type eventClient interface {
	Create(ctx context.Context, obj *corev1.Event, opts metav1.CreateOptions) (*corev1.Event, error)
}

type controller struct {
	*loop.Loop[assigned]
	own, replica    string
	others          *controllers.Shards
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	client          logicalClusterClient
	events          eventClient // in namespace default
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		own: deps.Shard, replica: deps.Replica, others: deps.Others(), logicalClusters: deps.Informers.LogicalClusters,
		client: deps.Clients.LogicalClusters, events: deps.Clients.Kube.CoreV1().Events(metav1.NamespaceDefault),
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(func(a assigned) bool { return decide(c.world(a)) != nothing })
	loop.WatchForeign(c.Loop, c.others.Workspaces, func(shard string, ws *tenancyv1alpha1.Workspace) []assigned {
		if ws.Labels[clusters.ShardLabel] != c.own || !assignable(ws) {
			return nil
		}
		return []assigned{{shard, clusters.KeyOf(ws), logicalcluster.Name(ws.Spec.Cluster)}}
	})
	loop.Watch(c.Loop, c.logicalClusters, c.owned)
	c.On(loop.Source[assigned]{Synced: c.logicalClusters.Synced(), Register: func() (remove func()) {
		return c.others.Contact.Follow(func(shard string, heard bool) {
			if !heard {
				return
			}
			// A cluster may have lost its Workspace while the shard was not heard.
			for _, lc := range c.logicalClusters.ByIndex(clusters.ByOwnerShard, shard) {
				for _, a := range c.owned(lc) {
					c.Add(a)
				}
			}
		})
	}})
	return c, nil
}

// assignable reports whether another shard may assign what a Workspace says: the cluster of a workspace, and a path
// that ends with its name.
func assignable(ws *tenancyv1alpha1.Workspace) bool {
	cluster := logicalcluster.Name(ws.Spec.Cluster)
	return clusters.IsValidName(cluster) && !clusters.IsPermanent(cluster) && !clusters.IsSystem(clusters.KeyOf(ws).Cluster) &&
		strings.HasSuffix(controllers.PathOf(ws), ":"+ws.Name)
}

// isAssigned reports whether a Workspace assigns the cluster of a to this shard.
func (c *controller) isAssigned(ws *tenancyv1alpha1.Workspace, a assigned) bool {
	return ws.Spec.Cluster == a.cluster.String() && ws.Labels[clusters.ShardLabel] == c.own && assignable(ws)
}

// owned returns lc with the Workspace of another shard that owns it, if one does.
func (c *controller) owned(lc *corev1alpha1.LogicalCluster) []assigned {
	shard, owner := lc.Labels[clusters.OwnerShardLabel], lc.Spec.Owner
	if shard == "" || shard == c.own || owner == nil {
		return nil
	}
	return []assigned{{shard, clusters.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}, clusters.KeyOf(lc).Cluster}}
}

// world returns what the caches show.
func (c *controller) world(a assigned) world {
	w := world{shard: a.shard, heard: c.others.Contact.Hears(a.shard)}
	if ws, ok := c.others.Workspaces.Get(a.shard, a.workspace); ok && c.isAssigned(ws, a) {
		w.workspace = ws
	}
	w.logicalCluster, _ = c.logicalClusters.Get(clusters.Key{Cluster: a.cluster, Name: corev1alpha1.LogicalClusterName})
	return w
}

// reconcile takes one step. A conflict is no error: the informer has delivered the newer LogicalCluster, or will, and
// queues the key again.
func (c *controller) reconcile(ctx context.Context, a assigned) error {
	w := c.world(a)
	step := decide(w)
	err := c.take(clusters.With(ctx, a.cluster), step, a, w)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Logical cluster changed meanwhile", "cluster", a.cluster, "step", step)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s logical cluster %s: %w", step, a, err)
	}
	return nil
}

func (c *controller) take(ctx context.Context, s step, a assigned, w world) error {
	switch s {
	case create:
		return c.create(ctx, a, w)
	case remove:
		lc := w.logicalCluster
		return controllers.IgnoreNotFound(c.client.Delete(ctx, lc.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lc.UID, ResourceVersion: &lc.ResourceVersion},
		}))
	case ask:
		return c.ask(ctx, a, w)
	case adopt:
		return c.adopt(ctx, a, w)
	case follow:
		return c.follow(ctx, a, w)
	case found:
		_, err := c.client.UpdateStatus(ctx, unmarked(w.logicalCluster), metav1.UpdateOptions{FieldManager: name})
		return controllers.IgnoreNotFound(err)
	}
	return nil
}

// followInterval is how often a shard is asked again that does not say yet where the cluster of a Workspace has moved.
const followInterval = 5 * time.Second

// follow writes that another shard has the Workspace of a cluster, if the former one says that the Workspace's cluster
// has moved there, or that it does not have it, and all that lead there say that it is there: the former one was
// restored.
func (c *controller) follow(ctx context.Context, a assigned, w world) error {
	lc := w.logicalCluster
	_, err := c.others.Live.LogicalCluster(ctx, lc.Labels[clusters.OwnerShardLabel], a.workspace.Cluster)
	moved, ok := errors.AsType[*clusters.MovedError](err)
	isThere := ok && moved.To.Shard == a.shard
	if !ok && apierrors.IsNotFound(err) && c.others.Homes != nil {
		at, _, err := c.others.Homes.Find(ctx, a.workspace.Cluster.Path())
		isThere = err == nil && at == a.shard
	}
	if !isThere {
		c.AddAfter(a, followInterval)
		return nil
	}
	out := lc.DeepCopy()
	metav1.SetMetaDataLabel(&out.ObjectMeta, clusters.OwnerShardLabel, a.shard)
	_, err = c.client.Update(ctx, out, metav1.UpdateOptions{FieldManager: name})
	return controllers.IgnoreNotFound(err)
}

// ask marks a cluster as an orphan, unless its Workspace is there after all.
func (c *controller) ask(ctx context.Context, a assigned, w world) error {
	live, err := c.others.Live.Workspace(ctx, a.shard, a.workspace)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case live.Spec.Cluster == a.cluster.String() && controllers.Owns(live, w.logicalCluster):
		return nil // the cache is late
	}
	marked, err := c.client.UpdateStatus(ctx, orphaned(w.logicalCluster, a), metav1.UpdateOptions{FieldManager: name})
	if err != nil {
		return controllers.IgnoreNotFound(err)
	}
	klog.FromContext(ctx).Info("A logical cluster has lost its Workspace, and stays: regent shard orphans lists such clusters", "cluster", a.cluster,
		"workspace", a.workspace, "of", a.shard)
	event := orphanedEvent(marked, a, c.replica)
	if _, err := c.events.Create(clusters.With(ctx, clusters.SystemAdmin), event, metav1.CreateOptions{FieldManager: name}); err != nil {
		klog.FromContext(ctx).V(2).Info("Event not written", "reason", event.Reason, "err", err)
	}
	return nil
}

// adopt gives a cluster its new owner, unless the Workspace has changed meanwhile.
func (c *controller) adopt(ctx context.Context, a assigned, w world) error {
	live, err := c.others.Live.Workspace(ctx, a.shard, a.workspace)
	if err != nil {
		return controllers.IgnoreNotFound(err)
	}
	if live.UID != w.workspace.UID || live.Spec.Cluster != a.cluster.String() || !mayAdopt(live, a.shard, w.logicalCluster) {
		return nil // its event comes
	}
	klog.FromContext(ctx).Info("A logical cluster has a Workspace again, which adopts it", "cluster", a.cluster, "workspace", a.workspace, "of", a.shard)
	_, err = c.client.Update(ctx, adopted(w.logicalCluster, live), metav1.UpdateOptions{FieldManager: name})
	return controllers.IgnoreNotFound(err)
}

// create first makes sure by a live read that the Workspace is as the cache shows it. The Workspace may go just after
// that. Therefore the controller of logical clusters looks once more before it makes the cluster Ready.
func (c *controller) create(ctx context.Context, a assigned, w world) error {
	live, err := c.others.Live.Workspace(ctx, a.shard, a.workspace)
	if err != nil {
		return controllers.IgnoreNotFound(err)
	}
	if live.UID != w.workspace.UID || live.DeletionTimestamp != nil || !c.isAssigned(live, a) || controllers.HasBegun(live) || controllers.Adopts(live) {
		return nil // its event comes
	}
	_, err = c.client.Create(ctx, controllers.NewLogicalCluster(live, a.shard), metav1.CreateOptions{FieldManager: name})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var _ controllers.Reporter = (*controller)(nil)
