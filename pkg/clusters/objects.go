package clusters

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// degree is of the tree of objects. Nodes of up to 63 entries keep it flat, and copying within a node cheap.
const degree = 32

// objects are the objects of an informer, by key and by index. The informer's mu guards them.
//
// A tree takes a sixth of the memory of a map for each cluster, where most clusters have an object or two of a
// resource. It can also be read page by page. There is a tree for each slot, so that the leader of one range of many
// does not read what is of others.
type objects[T Object] struct {
	trees    [slots]*btree.BTree[entry[T]] // nil: nothing was ever there
	free     *btree.FreeList[entry[T]]     // of all trees
	count    int
	indexers map[string]func(T) []string
	// byIndex has the objects by the name of the index and by value.
	byIndex map[string]groups[T]
}

type entry[T any] struct {
	key Key
	obj T
}

func newObjects[T Object](indexers map[string]func(T) []string) *objects[T] {
	o := &objects[T]{
		free:     btree.NewFreeList[entry[T]](btree.DefaultFreeListSize),
		indexers: indexers,
		byIndex:  map[string]groups[T]{},
	}
	for name := range indexers {
		o.byIndex[name] = groups[T]{}
	}
	return o
}

func newTree[T any](free *btree.FreeList[entry[T]]) *btree.BTree[entry[T]] {
	return btree.NewWithFreeList(degree, func(a, b entry[T]) bool { return a.key.compare(b.key) < 0 }, free)
}

// compare orders keys by cluster, then by namespace, then by name.
func (k Key) compare(other Key) int {
	if order := strings.Compare(k.Cluster.String(), other.Cluster.String()); order != 0 {
		return order
	}
	if order := strings.Compare(k.Namespace, other.Namespace); order != 0 {
		return order
	}
	return strings.Compare(k.Name, other.Name)
}

func (o *objects[T]) get(k Key) (obj T, ok bool) {
	tree := o.trees[RangeOf(k.Cluster, slots)]
	if tree == nil {
		return obj, false
	}
	e, ok := tree.Get(entry[T]{key: k})
	return e.obj, ok
}

func (o *objects[T]) set(k Key, obj T) {
	tree := &o.trees[RangeOf(k.Cluster, slots)]
	if *tree == nil {
		*tree = newTree(o.free)
	}
	if old, ok := (*tree).ReplaceOrInsert(entry[T]{k, obj}); ok {
		o.unindex(k, old.obj)
	} else {
		o.count++
	}
	for name, values := range o.indexers {
		for _, value := range values(obj) {
			o.byIndex[name].put(value, k, obj)
		}
	}
}

func (o *objects[T]) unset(k Key) {
	tree := o.trees[RangeOf(k.Cluster, slots)]
	if tree == nil {
		return
	}
	if old, ok := tree.Delete(entry[T]{key: k}); ok {
		o.unindex(k, old.obj)
		o.count--
	}
}

func (o *objects[T]) unindex(k Key, old T) {
	for name, values := range o.indexers {
		for _, value := range values(old) {
			o.byIndex[name].drop(value, k)
		}
	}
}

func (o *objects[T]) list(cluster logicalcluster.Name) (all []T) {
	if cluster == Wildcard {
		all = make([]T, 0, o.count)
		for _, tree := range o.trees {
			if tree != nil {
				tree.Ascend(func(e entry[T]) bool {
					all = append(all, e.obj)
					return true
				})
			}
		}
		return all
	}
	tree := o.trees[RangeOf(cluster, slots)]
	if tree == nil {
		return nil
	}
	tree.AscendGreaterOrEqual(entry[T]{key: Key{Cluster: cluster}}, func(e entry[T]) bool {
		if e.key.Cluster != cluster {
			return false
		}
		all = append(all, e.obj)
		return true
	})
	return all
}

// passed is how many objects a page of a range passes over for each that it may have. A page must not take long,
// because writers wait for it.
const passed = 16

// page returns up to n objects of a range behind the key after, and the key behind which the next page begins; the zero
// Key: there is none. The keys of a slot are in order.
func (o *objects[T]) page(of Range, after Key, n int) (page []T, next Key) {
	looks, more := n, false
	if of.Of > 1 {
		looks *= passed
	}
	var cluster logicalcluster.Name
	in := false
	from, to := of.slots()
	if after != (Key{}) {
		from = RangeOf(after.Cluster, slots)
	}
	for slot := from; slot < to && !more; slot++ {
		if o.trees[slot] == nil {
			continue
		}
		o.trees[slot].AscendGreaterOrEqual(entry[T]{key: after}, func(e entry[T]) bool {
			if e.key == after {
				return true
			}
			if more = looks == 0 || len(page) == n; more {
				return false
			}
			looks--
			if e.key.Cluster != cluster {
				cluster, in = e.key.Cluster, of.Has(e.key.Cluster)
			}
			if next = e.key; in {
				page = append(page, e.obj)
			}
			return true
		})
		after = Key{}
	}
	if !more {
		next = Key{}
	}
	return page, next
}

func (o *objects[T]) indexed(index, value string) []T {
	values, ok := o.byIndex[index]
	if !ok {
		panic(fmt.Sprintf("informer has no index %q: name it in NewInformer (has %v)", index, slices.Sorted(maps.Keys(o.byIndex))))
	}
	return values[value].all()
}

// groups are objects by a value of an index.
type groups[T any] map[string]group[T]

// group are the objects with one value. Most have one object, for which a tree would take three times the memory.
type group[T any] struct {
	entry[T]
	// more has all objects of the group, if it has had several. Then entry is not used. A tree is read five times
	// as fast as a map, which counts where a user has a hundred bindings.
	more *btree.BTree[entry[T]]
}

func (g groups[T]) put(value string, k Key, obj T) {
	of, ok := g[value]
	switch {
	case of.more != nil:
		of.more.ReplaceOrInsert(entry[T]{k, obj})
	case !ok || of.key == k:
		g[value] = group[T]{entry: entry[T]{k, obj}}
	default:
		more := newTree(btree.NewFreeList[entry[T]](0))
		more.ReplaceOrInsert(of.entry)
		more.ReplaceOrInsert(entry[T]{k, obj})
		g[value] = group[T]{more: more}
	}
}

// drop also removes an empty group, because most values of an index never come back.
func (g groups[T]) drop(value string, k Key) {
	of, ok := g[value]
	switch {
	case of.more != nil:
		if of.more.Delete(entry[T]{key: k}); of.more.Len() == 0 {
			delete(g, value)
		}
	case ok && of.key == k:
		delete(g, value)
	}
}

// all returns the objects of the group, in the order of their keys. The zero group has none.
func (g group[T]) all() []T {
	switch {
	case g.more != nil:
		out := make([]T, 0, g.more.Len())
		g.more.Ascend(func(e entry[T]) bool {
			out = append(out, e.obj)
			return true
		})
		return out
	case g.key == Key{}:
		return nil
	}
	return []T{g.obj}
}
