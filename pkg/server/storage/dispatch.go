package storage

import (
	"context"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// clusterField is the field by which the watch cache finds the watchers of a logical cluster. Users cannot select by it: the API
// refuses field selectors that a resource does not have.
const clusterField = logicalcluster.AnnotationKey

// dispatch is above the watch cache. It tells the cache which logical cluster a watch is in, so that a write costs the watchers of
// its own cluster, and those of all clusters, whatever others watch (I12). The key alone does not: upstream's cache compares it
// with the keys of all watchers.
type dispatch struct{ storage.Interface }

// byCluster is for cacher.Config. A cache has one such index, so no resource can have another.
var byCluster = storage.IndexerFuncs{clusterField: clusterOf}

func clusterOf(obj runtime.Object) string {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "" // no watcher's cluster
	}
	return logicalcluster.From(accessor).String()
}

// inCluster is a selector that tells the watch cache the cluster. It selects what the embedded one selects: the watch's key holds the
// cluster already. So the cache need not keep the cluster among the fields of each object.
type inCluster struct {
	fields.Selector
	cluster string
}

// RequiresExactMatch implements fields.Selector.
func (s inCluster) RequiresExactMatch(field string) (value string, found bool) {
	if field == clusterField {
		return s.cluster, true
	}
	return s.Selector.RequiresExactMatch(field)
}

// DeepCopySelector implements fields.Selector.
func (s inCluster) DeepCopySelector() fields.Selector {
	return inCluster{s.Selector.DeepCopySelector(), s.cluster}
}

// Watch adds the cluster to what the watch selects.
func (d *dispatch) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	cluster, ok := clusters.From(ctx)
	if !ok || cluster == clusters.Wildcard {
		return d.Interface.Watch(ctx, key, opts)
	}
	selected := &opts.Predicate
	if selected.Field == nil {
		selected.Field = fields.Everything()
	}
	selected.Field = inCluster{selected.Field, cluster.String()}
	selected.IndexFields = append(selected.IndexFields[:len(selected.IndexFields):len(selected.IndexFields)], clusterField)
	return d.Interface.Watch(ctx, key, opts)
}
