package garbagecollector

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// node identifies one object: neither a later one of its name, nor one in another logical cluster.
type node struct {
	// resource is empty for custom objects, whose key has their kind.
	resource schema.GroupVersionResource
	key      clusters.Key
	uid      types.UID
}

// custom reports whether n is a custom object.
func (n node) custom() bool { return n.resource.Empty() }

// LogicalCluster implements loop.Clustered.
func (n node) LogicalCluster() logicalcluster.Name { return n.key.Cluster }

// String is for logs and errors.
func (n node) String() string {
	if n.custom() {
		return n.key.String()
	}
	return fmt.Sprintf("%s %s", n.resource.GroupResource(), n.key)
}

func nodeOf(resource schema.GroupVersionResource, obj *metav1.PartialObjectMetadata) node {
	return node{resource: resource, key: clusters.KeyOf(obj), uid: obj.UID}
}

func customNode(obj *clusters.CustomObject) node { return node{key: clusters.KeyOf(obj), uid: obj.UID} }

// nodeOf returns the node of an object of any resource.
func (c *controller) nodeOf(r controllers.Resource, obj *metav1.PartialObjectMetadata) node {
	if _, builtIn := c.informers[r.GVR]; builtIn {
		return nodeOf(r.GVR, obj)
	}
	key := clusters.KeyOf(obj)
	return node{key: clusters.CustomKey(key.Cluster, schema.GroupKind{Group: r.GVR.Group, Kind: r.Kind}, key.Namespace, key.Name), uid: obj.UID}
}

// cached returns an object as the informers show it.
func (c *controller) cached(n node) (*metav1.PartialObjectMetadata, bool) {
	if !n.custom() {
		obj, ok := c.informers[n.resource].Get(n.key)
		return obj, ok && !clusters.IsTombstone(obj)
	}
	obj, ok := c.custom.Get(n.key)
	if !ok {
		return nil, false
	}
	return clusters.Metadata(obj), true
}

// served returns the resource of a node, through which the API serves it. It is not ok for a custom object whose
// definition is not there, or not yet.
func (c *controller) served(n node) (schema.GroupVersionResource, bool) {
	if !n.custom() {
		return n.resource, true
	}
	r, ok := c.all.CustomResource(n.key.Cluster, n.key.CustomKind())
	return r.GVR, ok
}

// resourcesIn returns all resources of a logical cluster. It does not depend on whether caches are late.
func (c *controller) resourcesIn(ctx context.Context, cluster logicalcluster.Name) ([]controllers.Resource, error) {
	custom, err := c.all.LiveCustomResources(ctx, c.metadata, cluster)
	return append(custom, c.resources...), err
}

// dependents returns the objects that refer to n, as far as the informers show them, in no order.
func (c *controller) dependents(n node) []node {
	var dependents []node
	owner := controllers.OwnerValue(n.key.Cluster, n.uid)
	for _, r := range c.resources {
		for _, obj := range c.informers[r.GVR].ByIndex(controllers.ByOwner, owner) {
			dependents = append(dependents, nodeOf(r.GVR, obj))
		}
	}
	for _, obj := range c.custom.ByIndex(controllers.ByOwner, owner) {
		dependents = append(dependents, customNode(obj))
	}
	return dependents
}
