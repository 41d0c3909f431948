package clusters

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
)

// objects are the objects of an informer, by cluster and by index. The informer's mu guards them.
type objects[T Object] struct {
	byCluster groups[logicalcluster.Name, T]
	indexers  map[string]func(T) []string
	// byIndex has the objects by the name of the index and by value.
	byIndex map[string]groups[string, T]
}

func newObjects[T Object](indexers map[string]func(T) []string) *objects[T] {
	o := &objects[T]{
		byCluster: groups[logicalcluster.Name, T]{},
		indexers:  indexers,
		byIndex:   map[string]groups[string, T]{},
	}
	for name := range indexers {
		o.byIndex[name] = groups[string, T]{}
	}
	return o
}

func (o *objects[T]) get(k Key) (T, bool) {
	obj, ok := o.byCluster[k.Cluster][k]
	return obj, ok
}

func (o *objects[T]) set(k Key, obj T) {
	o.unset(k)
	o.byCluster.put(k.Cluster, k, obj)
	for name, values := range o.indexers {
		for _, value := range values(obj) {
			o.byIndex[name].put(value, k, obj)
		}
	}
}

func (o *objects[T]) unset(k Key) {
	old, ok := o.get(k)
	if !ok {
		return
	}
	o.byCluster.drop(k.Cluster, k)
	for name, values := range o.indexers {
		for _, value := range values(old) {
			o.byIndex[name].drop(value, k)
		}
	}
}

func (o *objects[T]) list(cluster logicalcluster.Name) []T {
	if cluster != Wildcard {
		return slices.Collect(maps.Values(o.byCluster[cluster]))
	}
	n := 0
	for _, objs := range o.byCluster {
		n += len(objs)
	}
	all := make([]T, 0, n)
	for _, objs := range o.byCluster {
		all = slices.AppendSeq(all, maps.Values(objs))
	}
	return all
}

func (o *objects[T]) indexed(index, value string) []T {
	values, ok := o.byIndex[index]
	if !ok {
		panic(fmt.Sprintf("informer has no index %q: name it in NewInformer (has %v)", index, slices.Sorted(maps.Keys(o.byIndex))))
	}
	return slices.Collect(maps.Values(values[value]))
}

// groups are objects grouped by a property.
type groups[G comparable, T any] map[G]map[Key]T

func (g groups[G, T]) put(group G, k Key, obj T) {
	if g[group] == nil {
		g[group] = map[Key]T{}
	}
	g[group][k] = obj
}

// drop also removes an empty group: the names of clusters that have gone never come back.
func (g groups[G, T]) drop(group G, k Key) {
	delete(g[group], k)
	if len(g[group]) == 0 {
		delete(g, group)
	}
}
