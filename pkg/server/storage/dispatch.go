package storage

import (
	"context"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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

// withCluster adds the cluster to the fields by which objects are selected.
func withCluster(attrs storage.AttrFunc) storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		l, f, err := attrs(obj)
		if err != nil {
			return nil, nil, err
		}
		if f == nil {
			f = fields.Set{}
		}
		f[clusterField] = clusterOf(obj)
		return l, f, nil
	}
}

// Watch adds the cluster to what the watch selects.
func (d *dispatch) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	cluster, ok := clusters.From(ctx)
	if !ok || cluster == clusters.Wildcard {
		return d.Interface.Watch(ctx, key, opts)
	}
	selected := &opts.Predicate
	in := fields.OneTermEqualSelector(clusterField, cluster.String())
	if selected.Field != nil && !selected.Field.Empty() {
		in = fields.AndSelectors(selected.Field, in)
	}
	selected.Field = in
	selected.IndexFields = append(selected.IndexFields[:len(selected.IndexFields):len(selected.IndexFields)], clusterField)
	if selected.GetAttrs != nil {
		selected.GetAttrs = withCluster(selected.GetAttrs)
	}
	return d.Interface.Watch(ctx, key, opts)
}
