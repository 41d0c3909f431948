package garbagecollector

import (
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// kindIn is a kind in a logical cluster.
type kindIn struct {
	cluster logicalcluster.Name
	kind    schema.GroupKind
}

// awaiting are nodes that need a kind which the cluster does not define, or not yet: that of an owner, or their own.
// Nothing can be said of them until it does.
type awaiting struct {
	mu    sync.Mutex
	nodes map[kindIn]map[node]struct{}
}

func (a *awaiting) add(of kindIn, n node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes == nil {
		a.nodes = map[kindIn]map[node]struct{}{}
	}
	if a.nodes[of] == nil {
		a.nodes[of] = map[node]struct{}{}
	}
	a.nodes[of][n] = struct{}{}
}

func (a *awaiting) remove(of kindIn, n node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.nodes[of], n)
	if len(a.nodes[of]) == 0 {
		delete(a.nodes, of)
	}
}

// any reports whether a node waits for a kind. Mostly none does, and the definition need not be looked for.
func (a *awaiting) any(of kindIn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.nodes[of]) > 0
}

// take removes the nodes that wait for a kind, and returns them.
func (a *awaiting) take(of kindIn) (nodes []node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range a.nodes[of] {
		nodes = append(nodes, n)
	}
	delete(a.nodes, of)
	return nodes
}

// departed are custom objects that have been seen to go while others referred to them. When a definition is deleted,
// its objects go, and then it goes: nobody can ask the server about such an owner any more.
type departed struct {
	mu     sync.Mutex
	owners map[string]struct{} // see controllers.OwnerValue
}

func (d *departed) add(cluster logicalcluster.Name, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owners == nil {
		d.owners = map[string]struct{}{}
	}
	d.owners[controllers.OwnerValue(cluster, uid)] = struct{}{}
}

func (d *departed) has(cluster logicalcluster.Name, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.owners[controllers.OwnerValue(cluster, uid)]
	return ok
}

func (d *departed) remove(cluster logicalcluster.Name, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.owners, controllers.OwnerValue(cluster, uid))
}

// ofDefinition returns the nodes that have waited for the kind of a definition.
func (c *controller) ofDefinition(d *apiextensionsv1.CustomResourceDefinition) []node {
	return c.takeAwaiting(kindIn{clusters.KeyOf(d).Cluster, schema.GroupKind{Group: d.Spec.Group, Kind: d.Status.AcceptedNames.Kind}})
}

// ofBinding returns the nodes that have waited for the kinds that a binding has bound.
func (c *controller) ofBinding(b *apisv1alpha2.APIBinding) (nodes []node) {
	for n := range b.Status.BoundResources {
		if s, ok := c.all.BoundSchema(&b.Status.BoundResources[n]); ok {
			nodes = append(nodes, c.takeAwaiting(kindIn{clusters.KeyOf(b).Cluster, schema.GroupKind{Group: s.Spec.Group, Kind: s.Spec.Names.Kind}})...)
		}
	}
	return nodes
}

// ofSchema is ofBinding for all bindings that use a schema.
func (c *controller) ofSchema(s *apisv1alpha1.APIResourceSchema) (nodes []node) {
	if clusters.KeyOf(s).Cluster != clusters.BoundSchemas {
		return nil
	}
	for _, b := range c.all.APIBindings.ByIndex(controllers.ByBoundSchema, s.Name) {
		nodes = append(nodes, c.ofBinding(b)...)
	}
	return nodes
}

// takeAwaiting returns the nodes that have waited for a kind, if the caches show it now.
func (c *controller) takeAwaiting(of kindIn) []node {
	if !c.awaiting.any(of) {
		return nil
	}
	if _, ok := c.all.CustomResource(of.cluster, of.kind); !ok {
		return nil
	}
	return c.awaiting.take(of)
}

// undefined returns the kind of an owner that its cluster does not define, or not yet. It is not ok for all others,
// those that cannot be at all included.
func (c *controller) undefined(obj *metav1.PartialObjectMetadata, ref metav1.OwnerReference) (kindIn, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return kindIn{}, false
	}
	of := kindIn{clusters.KeyOf(obj).Cluster, schema.GroupKind{Group: gv.Group, Kind: ref.Kind}}
	if _, builtIn := c.kinds[of.kind]; builtIn {
		return kindIn{}, false
	}
	_, known := c.all.CustomResource(of.cluster, of.kind)
	return of, !known
}

// unlocated returns what is known of an owner that cannot be located. If a definition can change that, n is queued
// again then.
func (c *controller) unlocated(n node, obj *metav1.PartialObjectMetadata, ref metav1.OwnerReference) ownerState {
	of, ok := c.undefined(obj, ref)
	switch {
	case !ok:
		return unknowable
	case c.departed.has(of.cluster, ref.UID):
		return absent
	}
	c.awaiting.add(of, n)
	if _, still := c.undefined(obj, ref); !still { // it may have come before n waited
		c.Loop.Add(n)
	}
	return unknowable
}

// awaitOwn has a custom object wait for the definition of its own kind.
func (c *controller) awaitOwn(n node) {
	c.awaiting.add(kindIn{n.key.Cluster, n.key.CustomKind()}, n)
	if _, ok := c.served(n); ok {
		c.Loop.Add(n)
	}
}

// forget drops what is kept of an object that is there no more, and of its owners if it was the last that referred to
// them.
func (c *controller) forget(n node, obj *metav1.PartialObjectMetadata) {
	if n.custom() {
		c.awaiting.remove(kindIn{n.key.Cluster, n.key.CustomKind()}, n)
	}
	for _, ref := range obj.OwnerReferences {
		if of, ok := c.undefined(obj, ref); ok {
			c.awaiting.remove(of, n)
		}
		if c.departed.has(n.key.Cluster, ref.UID) && len(c.dependents(node{key: n.key, uid: ref.UID})) == 0 {
			c.departed.remove(n.key.Cluster, ref.UID)
		}
	}
}
