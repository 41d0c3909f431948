package garbagecollector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// node identifies one object: neither a later one of its name, nor one in another logical cluster.
type node struct {
	resource schema.GroupVersionResource
	key      clusters.Key
	uid      types.UID
}

func nodeOf(resource schema.GroupVersionResource, obj *metav1.PartialObjectMetadata) node {
	return node{resource: resource, key: clusters.KeyOf(obj), uid: obj.UID}
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
	return dependents
}
