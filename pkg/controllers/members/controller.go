// Package members keeps the shard's copies of all Shard objects of the installation, so that the root shard may be
// away, and tells in its own copy how many logical clusters this shard has and can have.
package members

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const name = "members"

// countEvery is the shortest time between two writes that tell how many logical clusters there are.
const countEvery = time.Second

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type shardClient interface {
	Create(ctx context.Context, obj *corev1alpha1.Shard, opts metav1.CreateOptions) (*corev1alpha1.Shard, error)
	Update(ctx context.Context, obj *corev1alpha1.Shard, opts metav1.UpdateOptions) (*corev1alpha1.Shard, error)
	UpdateStatus(ctx context.Context, obj *corev1alpha1.Shard, opts metav1.UpdateOptions) (*corev1alpha1.Shard, error)
}

type controller struct {
	*loop.Loop[string]
	own             self
	others          *controllers.Shards
	shards          *clusters.Informer[*corev1alpha1.Shard]
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	client          shardClient
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		own:             self{name: deps.Shard, baseURL: deps.ReplicaURL, externalURL: deps.BaseURL, capacity: deps.Capacity},
		others:          deps.Others(),
		shards:          deps.Informers.Shards,
		logicalClusters: deps.Informers.LogicalClusters,
		client:          deps.Clients.Shards,
	}
	c.Loop = loop.New(deps.Range, name, 1, c.reconcile)
	nameOf := func(s *corev1alpha1.Shard) []string { return []string{s.Name} }
	loop.Watch(c.Loop, c.shards, nameOf)
	loop.WatchForeign(c.Loop, c.others.Members, func(shard string, s *corev1alpha1.Shard) []string {
		if shard != c.others.Root {
			return nil
		}
		return nameOf(s)
	})
	if !c.Has(c.own.name) { // another range has what is the shard's
		return c, nil
	}
	c.On(loop.Source[string]{Synced: c.logicalClusters.Synced(), Register: func() (remove func()) {
		return c.logicalClusters.Follow(clusters.Range{}, func(old, new *corev1alpha1.LogicalCluster) {
			if old == nil || new == nil {
				c.AddAfter(c.own.name, countEvery)
			}
		})
	}})
	c.Add(c.own.name)
	return c, nil
}

// listed returns the Shard object that says that a shard is a member.
func (c *controller) listed(shard string) *corev1alpha1.Shard {
	key := clusters.Key{Cluster: clusters.Root, Name: shard}
	var listed *corev1alpha1.Shard
	if c.isRoot() {
		listed, _ = c.shards.Get(key)
	} else {
		listed, _ = c.others.Members.Get(c.others.Root, key)
	}
	return listed
}

func (c *controller) isRoot() bool { return c.others.Root == c.own.name }

// reconcile writes what differs. A conflict is no error: the informer has delivered the newer object, or will, and
// queues the key again.
func (c *controller) reconcile(ctx context.Context, shard string) error {
	listed := c.listed(shard)
	copied, _ := c.shards.Get(clusters.Key{Cluster: clusters.SystemShards, Name: shard})
	if err := c.write(ctx, shard, listed, copied); err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("shard %s: %w", shard, err)
	} else if err != nil {
		klog.FromContext(ctx).V(4).Info("Shard changed meanwhile", "changed", shard)
	}
	return nil
}

func (c *controller) write(ctx context.Context, shard string, listed, copied *corev1alpha1.Shard) error {
	home := clusters.With(ctx, clusters.SystemShards)
	if listed == nil && shard == c.own.name && c.isRoot() {
		_, err := c.client.Create(clusters.With(ctx, clusters.Root), c.own.object(), metav1.CreateOptions{FieldManager: name})
		return err
	}
	if listed != nil && copied == nil {
		_, err := c.client.Create(home, copyOf(listed, nil), metav1.CreateOptions{FieldManager: name})
		return err
	}
	if copied == nil {
		return nil
	}
	if listed != nil {
		if out := copyOf(listed, copied); out != nil {
			_, err := c.client.Update(home, out, metav1.UpdateOptions{FieldManager: name})
			return controllers.IgnoreNotFound(err)
		}
	}
	if shard == c.own.name {
		if out := c.own.tell(copied, int64(c.logicalClusters.Len())); out != nil {
			_, err := c.client.UpdateStatus(home, out, metav1.UpdateOptions{FieldManager: name})
			return controllers.IgnoreNotFound(err)
		}
	}
	return nil
}

var _ controllers.Reporter = (*controller)(nil)
