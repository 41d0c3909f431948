package garbagecollector

import (
	"maps"
	"slices"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
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

// identity is what an owner reference identifies. It includes the cluster, because a uid can be forged, or restored from a
// backup into a second cluster.
type identity struct {
	cluster logicalcluster.Name
	uid     types.UID
}

func (n node) identity() identity { return identity{n.key.Cluster, n.uid} }

// graph has the objects that refer to each owner, as far as the informers have shown them. It lasts for one term.
type graph struct {
	mu         sync.Mutex
	owners     map[node][]identity
	dependents map[identity]map[node]struct{}
}

func newGraph() *graph {
	return &graph{owners: map[node][]identity{}, dependents: map[identity]map[node]struct{}{}}
}

// set replaces the references of n. Without references, n is forgotten.
func (g *graph) set(n node, refs []metav1.OwnerReference) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, owner := range g.owners[n] {
		delete(g.dependents[owner], n)
		if len(g.dependents[owner]) == 0 {
			delete(g.dependents, owner)
		}
	}
	delete(g.owners, n)
	for _, ref := range refs {
		owner := identity{n.key.Cluster, ref.UID}
		g.owners[n] = append(g.owners[n], owner)
		if g.dependents[owner] == nil {
			g.dependents[owner] = map[node]struct{}{}
		}
		g.dependents[owner][n] = struct{}{}
	}
}

// of returns the objects that refer to owner, in no order.
func (g *graph) of(owner identity) []node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.dependents[owner]))
}
