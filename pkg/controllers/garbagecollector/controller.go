// Package garbagecollector acts on owner references inside each logical cluster. It deletes objects whose owners are all gone,
// in the background or the foreground, or removes an owner that orphans its dependents from their references.
//
// Upstream's collector builds a graph of all objects from informers of its own. This one uses an index of the shared informers,
// which has only objects with owners and is warm on standbys, too. It looks up owners by the name in the reference. Before it
// writes, it asks the server about everything that the informers do not show.
package garbagecollector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name    = "garbagecollector"
	workers = 8
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type cache = clusters.Cache[*metav1.PartialObjectMetadata]

type controller struct {
	*loop.Loop[node]
	informers map[schema.GroupVersionResource]cache
	metadata  metadata.Interface
	resources []controllers.Resource
	// kinds has no versions: a reference may name any version that was ever served.
	kinds map[schema.GroupKind]controllers.Resource
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		informers: deps.Informers.Metadata,
		metadata:  deps.Clients.Metadata,
		resources: deps.Resources,
		kinds:     map[schema.GroupKind]controllers.Resource{},
	}
	c.Loop = loop.New(name, workers, c.reconcile)
	c.Needs(c.needs)
	for _, r := range deps.Resources {
		inf, ok := c.informers[r.GVR]
		if !ok {
			return nil, fmt.Errorf("resource %s has no metadata informer: the server must run one for each resource it stores", r.GVR)
		}
		c.kinds[schema.GroupKind{Group: r.GVR.Group, Kind: r.Kind}] = r
		loop.Watch(c.Loop, inf, func(obj *metav1.PartialObjectMetadata) []node { return c.observe(r, obj) })
	}
	return c, nil
}

// observe returns the nodes that a change of obj concerns: obj itself, owners that may wait for it, and its dependents if it is
// gone. The loop calls it with the old and the new state. observe uses the informer's state, which is the newest.
func (c *controller) observe(r controllers.Resource, obj *metav1.PartialObjectMetadata) []node {
	n, concerned := nodeOf(r.GVR, obj), c.ownersInDeletion(obj)
	current, ok := c.informers[r.GVR].Get(n.key)
	switch {
	case !ok, current.UID != n.uid:
		return append(concerned, c.dependents(n)...)
	case len(current.OwnerReferences) > 0, orphans(current), waits(current):
		return append(concerned, n)
	default:
		return concerned
	}
}

// needs reports whether reconcile may have to write for a node, by the caches.
func (c *controller) needs(n node) bool {
	obj, ok := c.informers[n.resource].Get(n.key)
	switch {
	case !ok, obj.UID != n.uid:
		return false
	case orphans(obj), waits(obj):
		return true
	case obj.DeletionTimestamp != nil:
		return false
	}
	alone := false
	for _, ref := range obj.OwnerReferences {
		r, key, ok := c.locate(obj, ref)
		if !ok {
			return false // see unknowable
		}
		owner, ok := c.informers[r.GVR].Get(key)
		alone = alone || !ok || owner.UID != ref.UID || waits(owner)
	}
	return alone
}

// ownersInDeletion returns those of obj's owners that wait for their dependents.
func (c *controller) ownersInDeletion(obj *metav1.PartialObjectMetadata) []node {
	var owners []node
	for _, ref := range obj.OwnerReferences {
		r, key, ok := c.locate(obj, ref)
		if !ok {
			continue
		}
		if owner, ok := c.informers[r.GVR].Get(key); ok && owner.UID == ref.UID && (orphans(owner) || waits(owner)) {
			owners = append(owners, nodeOf(r.GVR, owner))
		}
	}
	return owners
}

// locate returns the resource and key of the owner that ref names. It must be in obj's cluster and, if its kind has namespaces,
// in obj's namespace. locate returns false if there can be no such owner.
func (c *controller) locate(obj *metav1.PartialObjectMetadata, ref metav1.OwnerReference) (controllers.Resource, clusters.Key, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return controllers.Resource{}, clusters.Key{}, false
	}
	r, ok := c.kinds[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}]
	if !ok || r.Namespaced && obj.Namespace == "" {
		return controllers.Resource{}, clusters.Key{}, false
	}
	key := clusters.Key{Cluster: clusters.KeyOf(obj).Cluster, Name: ref.Name}
	if r.Namespaced {
		key.Namespace = obj.Namespace
	}
	return r, key, true
}

// reconcile does what an object's owners, or its own deletion, require. A conflict is no error: the informer has delivered the
// change, or will, and queues the node again.
func (c *controller) reconcile(ctx context.Context, n node) error {
	obj, ok := c.informers[n.resource].Get(n.key)
	if !ok || obj.UID != n.uid {
		return nil
	}
	ctx = clusters.With(ctx, n.key.Cluster)
	work := c.collect
	switch {
	case orphans(obj):
		work = c.orphan
	case waits(obj):
		work = c.await
	case obj.DeletionTimestamp != nil, len(obj.OwnerReferences) == 0:
		return nil
	}
	err := work(ctx, n, obj)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		klog.FromContext(ctx).V(4).Info("Object changed meanwhile", "resource", n.resource, "object", n.key, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("%s %s: %w", n.resource.GroupResource(), n.key, err)
	}
	return nil
}

var _ controllers.Reporter = (*controller)(nil)
