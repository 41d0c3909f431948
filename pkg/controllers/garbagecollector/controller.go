// Package garbagecollector acts on owner references inside each logical cluster. It deletes objects whose owners are
// all gone, in the background or the foreground, or removes an owner that orphans its dependents from their references.
//
// Upstream's collector builds a graph of all objects from informers of its own. This one uses an index of the shared
// informers, which has only objects with owners and is warm on standbys, too. It looks up owners by the name in the
// reference. Before it writes, it asks the server about everything that the informers do not show.
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
	custom    *clusters.Informer[*clusters.CustomObject]
	all       controllers.Informers
	metadata  metadata.Interface
	resources []controllers.Resource
	// kinds has no versions: a reference may name any version that was ever served.
	kinds    map[schema.GroupKind]controllers.Resource
	awaiting awaiting
	departed departed
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		informers: deps.Informers.Metadata,
		custom:    deps.Informers.CustomObjects,
		all:       deps.Informers,
		metadata:  deps.Clients.Metadata,
		resources: deps.Resources,
		kinds:     map[schema.GroupKind]controllers.Resource{},
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(c.needs)
	for _, r := range deps.Resources {
		inf, ok := c.informers[r.GVR]
		if !ok {
			return nil, fmt.Errorf("resource %s has no metadata informer: the server must run one for each resource it stores", r.GVR)
		}
		c.kinds[schema.GroupKind{Group: r.GVR.Group, Kind: r.Kind}] = r
		loop.WatchDue(c.Loop, inf, func(obj *metav1.PartialObjectMetadata) []node { return c.observe(nodeOf(r.GVR, obj), obj) }, concerns)
	}
	loop.Follow(c.Loop, deps.Informers.Definitions, c.ofDefinition)
	loop.Follow(c.Loop, deps.Informers.APIBindings, c.ofBinding)
	loop.FollowAll(c.Loop, deps.Informers.APIResourceSchemas, c.ofSchema)
	loop.WatchDue(c.Loop, c.custom, func(obj *clusters.CustomObject) []node { return c.observe(customNode(obj), clusters.Metadata(obj)) },
		func(obj *clusters.CustomObject) bool { return concerns(clusters.Metadata(obj)) })
	return c, nil
}

// observe returns the nodes that a change of obj concerns: obj itself, owners that may wait for it, and its dependents
// if it is gone. The loop calls it with the old and the new state. observe uses the informer's state, which is the
// newest.
func (c *controller) observe(n node, obj *metav1.PartialObjectMetadata) []node {
	concerned := c.ownersInDeletion(obj)
	current, ok := c.cached(n)
	switch {
	case !ok, current.UID != n.uid:
		c.forget(n, obj)
		dependents := c.dependents(n)
		if n.custom() && len(dependents) > 0 {
			c.departed.add(n.key.Cluster, n.uid)
		}
		return append(concerned, dependents...)
	case concerns(current):
		return append(concerned, n)
	default:
		return concerned
	}
}

// concerns reports whether an object that is there concerns this controller.
func concerns(obj *metav1.PartialObjectMetadata) bool {
	return len(obj.OwnerReferences) > 0 || orphans(obj) || waits(obj)
}

// needs reports whether reconcile may have to write for a node, by the caches.
func (c *controller) needs(n node) bool {
	obj, ok := c.cached(n)
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
		at, ok := c.locate(obj, ref)
		if _, undefined := c.undefined(obj, ref); undefined {
			alone = true // it has to wait for the kind
			continue
		}
		if !ok {
			return false // see unknowable
		}
		owner, ok := c.cached(at)
		alone = alone || !ok || owner.UID != ref.UID || waits(owner)
	}
	return alone
}

// ownersInDeletion returns those of obj's owners that wait for their dependents.
func (c *controller) ownersInDeletion(obj *metav1.PartialObjectMetadata) []node {
	var owners []node
	for _, ref := range obj.OwnerReferences {
		at, ok := c.locate(obj, ref)
		if !ok {
			continue
		}
		if owner, ok := c.cached(at); ok && owner.UID == ref.UID && (orphans(owner) || waits(owner)) {
			owners = append(owners, at)
		}
	}
	return owners
}

// locate returns the owner that ref names. It must be in obj's cluster and, if its kind has namespaces, in obj's
// namespace. locate returns false if there can be no such owner.
func (c *controller) locate(obj *metav1.PartialObjectMetadata, ref metav1.OwnerReference) (node, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return node{}, false
	}
	cluster, kind := clusters.KeyOf(obj).Cluster, schema.GroupKind{Group: gv.Group, Kind: ref.Kind}
	r, builtIn := c.kinds[kind]
	if !builtIn {
		var ok bool
		if r, ok = c.all.CustomResource(cluster, kind); !ok {
			return node{}, false
		}
	}
	if r.Namespaced && obj.Namespace == "" {
		return node{}, false
	}
	namespace := ""
	if r.Namespaced {
		namespace = obj.Namespace
	}
	if builtIn {
		return node{resource: r.GVR, key: clusters.Key{Cluster: cluster, Namespace: namespace, Name: ref.Name}, uid: ref.UID}, true
	}
	return node{key: clusters.CustomKey(cluster, kind, namespace, ref.Name), uid: ref.UID}, true
}

// reconcile does what an object's owners, or its own deletion, require. A conflict is no error: the informer has
// delivered the change, or will, and queues the node again.
func (c *controller) reconcile(ctx context.Context, n node) error {
	obj, ok := c.cached(n)
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
	if _, ok := c.served(n); !ok {
		c.awaitOwn(n)
		return nil
	}
	err := work(ctx, n, obj)
	switch {
	case apierrors.IsConflict(err), isAbsent(err):
		klog.FromContext(ctx).V(4).Info("Object changed meanwhile", "object", n, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", n, err)
	}
	return nil
}

var _ controllers.Reporter = (*controller)(nil)
