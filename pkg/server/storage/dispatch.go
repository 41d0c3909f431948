package storage

import (
	"context"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// collectionField is the field by which the watch cache finds the watchers of a collection. Users cannot select by it:
// the API refuses field selectors that a resource does not have.
const collectionField = logicalcluster.AnnotationKey

// dispatch is above the watch cache. It tells the cache which collection a watch is of, so that a write costs the
// watchers of its own logical cluster, and those of all clusters, whatever others watch (I12). The key alone does not:
// upstream's cache compares it with the keys of all watchers.
type dispatch struct {
	storage.Interface
	collections collections
}

// collections finds out of which collection an object or a watch is: of a logical cluster, or of a part of one.
type collections struct {
	prefix string
	// below is how many segments of a key behind the logical cluster name the part.
	below int
}

// indexers are for cacher.Config. A cache has one such index, so no resource can have another.
func (c collections) indexers(key func(runtime.Object) (string, error)) storage.IndexerFuncs {
	if c.below == 0 {
		return storage.IndexerFuncs{collectionField: clusterOf}
	}
	return storage.IndexerFuncs{collectionField: func(obj runtime.Object) string {
		k, err := key(obj)
		if err != nil {
			return "" // of no watcher
		}
		return c.of(k)
	}}
}

func clusterOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "" // of no watcher
	}
	return logicalcluster.From(accessor).String()
}

// of returns the collection that a key, with its cluster, is of or in. It is empty if the key is above all collections.
func (c collections) of(key string) string {
	rest := strings.Trim(strings.TrimPrefix(key, c.prefix), "/")
	end := 0
	for n := 0; n <= c.below; n++ {
		if end == len(rest) {
			return ""
		}
		if n > 0 {
			end++
		}
		if slash := strings.IndexByte(rest[end:], '/'); slash >= 0 {
			end += slash
		} else {
			end = len(rest)
		}
	}
	return rest[:end]
}

// ofCollection is a selector that tells the watch cache the collection. It selects what the embedded one selects: the
// watch's key holds the collection already. So the cache need not keep it among the fields of each object.
type ofCollection struct {
	fields.Selector
	collection string
}

// RequiresExactMatch implements fields.Selector.
func (s ofCollection) RequiresExactMatch(field string) (value string, ok bool) {
	if field == collectionField {
		return s.collection, true
	}
	return s.Selector.RequiresExactMatch(field)
}

// DeepCopySelector implements fields.Selector.
func (s ofCollection) DeepCopySelector() fields.Selector {
	return ofCollection{s.Selector.DeepCopySelector(), s.collection}
}

// Watch adds the collection to what the watch selects.
func (d *dispatch) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	collection := d.collections.of(key)
	if collection == "" {
		return d.Interface.Watch(ctx, key, opts)
	}
	selected := &opts.Predicate
	if selected.Field == nil {
		selected.Field = fields.Everything()
	}
	selected.Field = ofCollection{selected.Field, collection}
	selected.IndexFields = append(selected.IndexFields[:len(selected.IndexFields):len(selected.IndexFields)], collectionField)
	return d.Interface.Watch(ctx, key, opts)
}
