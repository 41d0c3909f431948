// Package garbagecollector carries out what owner references say, inside each logical cluster: objects whose owners
// are all gone are deleted, in the background or the foreground, or freed from an owner that orphans them.
//
// Upstream's collector builds a graph of every object from informers of its own. Here only objects that have owners
// are kept, per term, and owners are looked up by the name in the reference; what the graph does not show is asked of
// the server before anything is done.
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

// Descriptor is the controller's entry for a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type informer = clusters.Informer[*metav1.PartialObjectMetadata]

type controller struct {
	*loop.Loop[node]
	informers map[schema.GroupVersionResource]*informer
	metadata  metadata.Interface
	resources []controllers.Resource
	// kinds has no versions: a reference may name any that was ever served.
	kinds map[schema.GroupKind]controllers.Resource
	graph *graph
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		informers: deps.Informers.Metadata,
		metadata:  deps.Clients.Metadata,
		resources: deps.Resources,
		kinds:     map[schema.GroupKind]controllers.Resource{},
		graph:     newGraph(),
	}
	c.Loop = loop.New(name, workers, c.reconcile)
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

// observe keeps the graph and returns what a change to obj concerns: itself, the owners that may be waiting for it, and
// if it is gone those that depend on it. The loop calls it with the old and then the new state, so it takes what the
// informer holds for the truth: that is the newest.
func (c *controller) observe(r controllers.Resource, obj *metav1.PartialObjectMetadata) []node {
	n := nodeOf(r.GVR, obj)
	current, ok := c.informers[r.GVR].Get(n.key)
	if !ok || current.UID != n.uid {
		c.graph.set(n, nil)
		return append(c.ownersInDeletion(obj), c.graph.of(n.identity())...)
	}
	c.graph.set(n, current.OwnerReferences)
	concerned := c.ownersInDeletion(obj)
	if len(current.OwnerReferences) > 0 || orphans(current) || waits(current) {
		concerned = append(concerned, n)
	}
	return concerned
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

// locate returns where the owner named by ref has to be: in obj's cluster and, if its kind has namespaces, in obj's
// namespace. It returns false if there can be no such place.
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

// reconcile does what one object's owners, or its own deletion, call for. A conflict is no error: the informer has
// brought what changed, or will, and with it the node.
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
