package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/etcdfence"
)

// Pairs decides which Workspaces come and go in one transaction with their LogicalClusters. All others are for the
// leader's controllers, which take a step at a time.
type Pairs interface {
	// Begin returns a new Workspace of a logical cluster as it is once it is Ready, and the LogicalCluster that is
	// created with it. Both are nil if it is for the leader.
	Begin(in logicalcluster.Name, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, *corev1alpha1.LogicalCluster)
	// End returns the LogicalCluster that goes with a Workspace whose deletion begins, if it holds nothing. Nil: it
	// is for the leader.
	End(ws *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster
}

// ServePairs has Workspaces come and go with their LogicalClusters from now on. It is called once.
func (c *Client) ServePairs(p Pairs) { c.pairs.Store(&p) }

// paired creates a Workspace with its LogicalCluster, and deletes both if the logical cluster holds nothing. A watch of
// either resource sees one change of it.
type paired struct {
	storage.Interface // above the router, and below the finalizers
	client            *Client
	prefix            string
}

// Create implements storage.Interface.
func (p *paired) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	pairs, in, ws := p.client.pairs.Load(), clusterIn(ctx), workspaceOf(obj)
	if pairs == nil || ws == nil {
		return p.Interface.Create(ctx, key, obj, out, ttl)
	}
	begun, lc := (*pairs).Begin(in, ws)
	if lc == nil {
		return p.Interface.Create(ctx, key, obj, out, ttl)
	}
	other, data, err := p.client.clusterObjects.Load().encode(ctx, lc)
	if err != nil {
		return fmt.Errorf("the LogicalCluster of workspace %s: %w", ws.Name, err)
	}
	ctx = etcdfence.WithTransaction(context.WithValue(ctx, besideKey{}, len(data)), etcdfence.Transaction{
		When: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(other), "=", 0)},
		Then: []clientv3.Op{clientv3.OpPut(other, string(data))},
	})
	return p.Interface.Create(ctx, key, begun, out, ttl)
}

// GuaranteedUpdate implements storage.Interface. A request that deletes a Workspace updates it first: upstream marks it
// as being deleted, because it has a finalizer.
func (p *paired) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	gone, err := p.remove(ctx, key, preconditions, tryUpdate)
	if err != nil {
		return err
	}
	if gone != nil {
		return set(out, gone)
	}
	return p.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached)
}

// marked returns the cached Workspace as an update that deletes it marks it, and the revision that it had. ok is false
// if there is none, or if it may not be deleted.
func (p *paired) marked(ctx context.Context, key string, preconditions *storage.Preconditions, mark storage.UpdateFunc) (_ *tenancyv1alpha1.Workspace, revision uint64, ok bool) {
	there := &tenancyv1alpha1.Workspace{}
	if p.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, there) != nil || there.DeletionTimestamp != nil || preconditions.Check(key, there) != nil {
		return nil, 0, false
	}
	revision, unknown := p.Versioner().ObjectResourceVersion(there)
	marked, _, refused := mark(there, storage.ResponseMeta{ResourceVersion: revision})
	if unknown != nil || refused != nil {
		return nil, 0, false
	}
	ws := workspaceOf(marked)
	return ws, revision, ws != nil && ws.DeletionTimestamp != nil
}

// remove deletes a Workspace together with its LogicalCluster, if that holds nothing. It decides by memory, and the
// transaction compares what it has decided by. It returns the Workspace as it was last, and nil if it is still there:
// then the update finds out why.
func (p *paired) remove(ctx context.Context, key string, preconditions *storage.Preconditions, mark storage.UpdateFunc) (runtime.Object, error) {
	pairs := p.client.pairs.Load()
	if pairs == nil || !deletes(ctx) {
		return nil, nil
	}
	ws, revision, ok := p.marked(ctx, key, preconditions, mark)
	if !ok {
		return nil, nil
	}
	lc := (*pairs).End(ws)
	if lc == nil {
		return nil, nil
	}
	when, then, err := p.client.emptied(ctx, lc)
	if err != nil || when == nil {
		return nil, err
	}
	routed, err := clusters.StorageKey(p.prefix, key, clusterIn(ctx))
	if err != nil {
		return nil, err
	}
	resp, err := p.client.etcd.Kubernetes.OptimisticDelete(etcdfence.WithTransaction(ctx, etcdfence.Transaction{When: when, Then: then}),
		p.client.config.Prefix+routed, int64(revision), kubernetes.DeleteOptions{}) //nolint:gosec // revisions of etcd are int64
	if errors.Is(err, ErrConditionUnmet) || errors.Is(err, rpctypes.ErrTooManyOps) || err == nil && !resp.Succeeded {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ws, p.Versioner().UpdateObject(ws, uint64(resp.Revision)) //nolint:gosec // see above
}

// deletes reports whether a request deletes.
func deletes(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && (info.Verb == "delete" || info.Verb == "deletecollection")
}

// emptied returns the comparisons by which a logical cluster holds nothing but its LogicalCluster, and the deletion of
// that. when is nil if it holds something, or may do so.
//
// etcd reads all that is in a range that it compares. So that this is next to nothing, the tallies are asked first, and
// etcd for one object of each resource of which they know nothing: Events, and all while the caches are being filled.
func (c *Client) emptied(ctx context.Context, lc *corev1alpha1.LogicalCluster) (when []clientv3.Cmp, then []clientv3.Op, err error) {
	cluster, objects := logicalcluster.From(lc), c.clusterObjects.Load()
	key, err := objects.key(cluster)
	if err != nil {
		return nil, nil, err
	}
	revision, err := strconv.ParseInt(lc.ResourceVersion, 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("the LogicalCluster of %s: %w", cluster, err)
	}
	if c.StoredIn(cluster).Objects > 1 {
		return nil, nil, nil
	}
	when = append(when, clientv3.Compare(clientv3.ModRevision(key), "=", revision), isThawed(c.config.Prefix, cluster))
	var untallied []schema.GroupVersionResource
	for stored := range c.resources.Range {
		resource := stored.(schema.GroupResource)
		if resource == corev1alpha1.Resource("logicalclusters") {
			continue
		}
		if !c.tallies.know(resource) {
			untallied = append(untallied, resource.WithVersion(""))
		}
		prefix, err := c.contents(resource, cluster)
		if err != nil {
			return nil, nil, err
		}
		when = append(when, clientv3.Compare(clientv3.CreateRevision(prefix).WithPrefix(), "=", 0))
	}
	if len(when) > opsAtOnce {
		return nil, nil, nil
	}
	if held, err := c.Holding(clusters.With(ctx, cluster), untallied); err != nil || len(held) > 0 {
		return nil, nil, err
	}
	return when, []clientv3.Op{clientv3.OpDelete(key)}, nil
}

// clusterObjects are the LogicalClusters in etcd, below the watch cache.
type clusterObjects struct {
	storage.Interface
	root, prefix string // of the keys: the shard's, and behind it that of the resource
	codec        runtime.Encoder
	transformer  value.Transformer
}

// key returns the key in etcd of a LogicalCluster.
func (o *clusterObjects) key(cluster logicalcluster.Name) (string, error) {
	key, err := clusters.StorageKey(o.prefix, o.prefix+"/"+corev1alpha1.LogicalClusterName, cluster)
	return o.root + key, err
}

// encode returns the key and the value of a new LogicalCluster, which says in which logical cluster it is.
func (o *clusterObjects) encode(ctx context.Context, lc *corev1alpha1.LogicalCluster) (key string, data []byte, err error) {
	if key, err = o.key(logicalcluster.From(lc)); err != nil {
		return "", nil, err
	}
	rest.FillObjectMetaSystemFields(lc)
	if err := o.Versioner().PrepareObjectForStorage(lc); err != nil {
		return "", nil, err
	}
	if data, err = runtime.Encode(o.codec, lc); err != nil {
		return "", nil, err
	}
	data, err = o.transformer.TransformToStorage(ctx, data, value.DefaultContext(key))
	return key, data, err
}

// besideKey is the context key of how many bytes are written beside an object, in one transaction with it.
type besideKey struct{}

// bytesIn returns how many bytes a write in ctx has: those of its object, and those beside it.
func bytesIn(ctx context.Context, object int) int {
	beside, _ := ctx.Value(besideKey{}).(int)
	return object + beside
}

func clusterIn(ctx context.Context) logicalcluster.Name {
	cluster, _ := clusters.From(ctx)
	return cluster
}

// workspaceOf returns nil for whatever is no Workspace, such as what cannot be decoded.
func workspaceOf(obj runtime.Object) *tenancyv1alpha1.Workspace {
	ws, _ := obj.(*tenancyv1alpha1.Workspace)
	return ws
}
