package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
)

// A logical cluster that comes is one that is taken in with what it had somewhere else, or before it was deleted. It
// has a LogicalCluster that says so (clusters.IsComing) from Come on, and is frozen: whoever took the freeze writes its
// objects with Write. Settle makes it a logical cluster like any other, and Discard removes it. Each of the two
// compares in its transactions what the other one ends, so it becomes exactly one of both. Whoever began may die: the
// freeze ends by itself, and the leader discards what is left.

// The errors of Come and Settle.
var (
	// ErrClusterThere is of a logical cluster that is to come, and is there.
	ErrClusterThere = errors.New("the shard has the logical cluster already")
	// ErrWorkspaceThere is of a Workspace that is to come, and is there.
	ErrWorkspaceThere = errors.New("there is a Workspace of that name")
	// ErrParentChanged is of a logical cluster that is to have a Workspace, and is not as it was when that was
	// decided.
	ErrParentChanged = errors.New("the logical cluster that is to have the Workspace has changed")
)

// Come begins a logical cluster that comes, with its LogicalCluster. It must have nothing in etcd. why is as in Freeze.
// An error may wrap ErrFrozen or ErrClusterThere.
func (c *Client) Come(ctx context.Context, cluster logicalcluster.Name, lc Stored, why string) (Freeze, error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, err := c.opOf(ctx, StoredIn{Cluster: cluster, Stored: lc})
	if err != nil {
		return Freeze{}, err
	}
	f, err := c.freeze(ctx, cluster, why, clientv3.Compare(clientv3.CreateRevision(string(put.KeyBytes())), "=", 0), put)
	if errors.Is(err, ErrNoCluster) {
		return Freeze{}, fmt.Errorf("%w: %s", ErrClusterThere, cluster)
	}
	if err != nil {
		return Freeze{}, err
	}
	// Nothing can be created in a logical cluster that has no LogicalCluster, so this is of an etcd that somebody
	// else has written to.
	if held, err := c.holds(ctx, cluster); err != nil || len(held) > 0 {
		return Freeze{}, errors.Join(err, isHeld(cluster, held), c.end(context.WithoutCancel(ctx), f, string(put.KeyBytes()), f.Revision))
	}
	return f, nil
}

func isHeld(cluster logicalcluster.Name, held []schema.GroupVersionResource) error {
	if len(held) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s has no LogicalCluster, and objects in etcd, such as %s: somebody else has written or removed them", ErrClusterThere, cluster, held[0].Resource)
}

// holds returns the resources of which a logical cluster has objects, without its LogicalCluster.
func (c *Client) holds(ctx context.Context, cluster logicalcluster.Name) ([]schema.GroupVersionResource, error) {
	var all []schema.GroupVersionResource
	for stored := range c.resources.Range {
		if resource := stored.(schema.GroupResource); resource != corev1alpha1.Resource("logicalclusters") {
			all = append(all, resource.WithVersion(""))
		}
	}
	return c.Holding(clusters.With(ctx, cluster), all)
}

// hasBegun holds while a freeze does that Come has begun: both its keys have one revision.
func (c *Client) hasBegun(f Freeze, lc string) []clientv3.Cmp {
	return append(f.holds(c.config.Prefix), clientv3.Compare(clientv3.ModRevision(lc), "=", f.Revision))
}

// Settle ends a freeze that Come has begun, and makes the logical cluster one that is there: with its LogicalCluster
// and its Workspace, in one transaction. The Workspace is in another logical cluster, whose LogicalCluster must have
// that revision. An error may wrap ErrThawed, ErrWorkspaceThere, ErrFrozen of the other logical cluster, or
// ErrParentChanged.
func (c *Client) Settle(ctx context.Context, f Freeze, lc Stored, in logicalcluster.Name, revision int64, workspace Stored) (through int64, err error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	putLC, err := c.opOf(ctx, StoredIn{Cluster: f.Cluster, Stored: lc})
	if err != nil {
		return 0, err
	}
	putWorkspace, err := c.opOf(ctx, StoredIn{Cluster: in, Stored: workspace})
	if err != nil {
		return 0, err
	}
	parent, err := c.clusterObjects.Load().key(in)
	if err != nil {
		return 0, err
	}
	lcKey, wsKey := string(putLC.KeyBytes()), string(putWorkspace.KeyBytes())
	frozen, parentFrozen := freezeKey(c.config.Prefix, f.Cluster), freezeKey(c.config.Prefix, in)
	made, err := c.etcd.Txn(ctx).
		If(append(c.hasBegun(f, lcKey), clientv3.Compare(clientv3.CreateRevision(wsKey), "=", 0),
			isThawed(c.config.Prefix, in), clientv3.Compare(clientv3.ModRevision(parent), "=", revision))...).
		Then(putLC, putWorkspace, clientv3.OpDelete(frozen)).
		Else(clientv3.OpGet(frozen), clientv3.OpGet(lcKey), clientv3.OpGet(wsKey), clientv3.OpGet(parentFrozen)).Commit()
	if err == nil && !made.Succeeded {
		err = unsettled(f, made.Responses)
	}
	if err != nil {
		return 0, fmt.Errorf("let logical cluster %s be there: %w", f.Cluster, err)
	}
	_ = c.revoke(ctx, f) // it has nothing any more, and ends by itself
	return made.Header.Revision - 1, nil
}

// unsettled says why Settle has done nothing, by what there is: the freeze, the LogicalCluster, the Workspace, and the
// freeze of the logical cluster that is to have that.
func unsettled(f Freeze, there []*etcdserverpb.ResponseOp) error {
	has := func(i int) bool { return len(there[i].GetResponseRange().Kvs) > 0 }
	isOf := func(i int) bool { return has(i) && there[i].GetResponseRange().Kvs[0].ModRevision == f.Revision }
	switch {
	case !isOf(0) || !isOf(1):
		return ErrThawed
	case has(2):
		return ErrWorkspaceThere
	case has(3):
		return ErrFrozen
	}
	return ErrParentChanged
}

// Discard removes a logical cluster that comes, with all that it has. revision is that of its LogicalCluster, which
// says that it comes: see Come. by is the freeze of who began it; nil: nobody's, and it must have ended. Finalizers
// keep nothing: nobody has seen the objects. An error may wrap ErrFrozen, ErrThawed, or ErrNoCluster if the
// LogicalCluster has changed. If it fails, some objects may be gone, and it may be called again.
//
// It needs no fencing token: what it compares holds for no logical cluster that is there.
func (c *Client) Discard(ctx context.Context, cluster logicalcluster.Name, revision int64, by *Freeze) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	key, err := c.clusterObjects.Load().key(cluster)
	if err != nil {
		return err
	}
	if by == nil {
		f, err := c.freeze(ctx, cluster, "it is removed, because it did not come as a whole", clientv3.Compare(clientv3.ModRevision(key), "=", revision))
		if err != nil {
			return err
		}
		by = &f
	}
	while := func(ctx context.Context, gone ...clientv3.Op) error {
		return c.whileComing(ctx, *by, key, revision, gone...)
	}
	renew := func(ctx context.Context) error {
		_, err := c.etcd.KeepAliveOnce(ctx, by.lease)
		return thawedBy(err)
	}
	if err := c.removeAll(ctx, cluster, key, renew, while); err != nil {
		return err
	}
	return c.end(ctx, *by, key, revision)
}

// removeAll deletes what a logical cluster has, but for its LogicalCluster, whose key that is. while deletes one
// object, and no more in one transaction: see together. renew is called once in a while.
func (c *Client) removeAll(ctx context.Context, cluster logicalcluster.Name, key string, renew func(context.Context) error, while func(ctx context.Context, gone ...clientv3.Op) error) error {
	for _, r := range c.storedResources() {
		prefix, err := clusters.StorageKey(r.prefix, r.prefix, cluster)
		if err != nil {
			return err
		}
		if err := c.removeBelow(ctx, c.config.Prefix+prefix+"/", key, renew, while); err != nil {
			return fmt.Errorf("remove what logical cluster %s has of %s: %w", cluster, r.name(), err)
		}
	}
	return nil
}

// removeBelow deletes the keys with a prefix, but for one.
func (c *Client) removeBelow(ctx context.Context, prefix, key string, renew func(context.Context) error, while func(ctx context.Context, gone ...clientv3.Op) error) error {
	for from := prefix; ; {
		page, err := c.etcd.KV.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithKeysOnly(), clientv3.WithLimit(manyKeys))
		if err != nil || len(page.Kvs) == 0 {
			return err
		}
		if err := renew(ctx); err != nil {
			return err
		}
		removing, ctx := errgroup.WithContext(ctx)
		removing.SetLimit(writersAtOnce)
		for _, kv := range page.Kvs {
			if from = string(kv.Key) + "\x00"; string(kv.Key) != key {
				removing.Go(func() error { return while(ctx, clientv3.OpDelete(string(kv.Key))) })
			}
		}
		if err := removing.Wait(); err != nil {
			return err
		}
	}
}

// end deletes the LogicalCluster of one that comes, and its freeze.
func (c *Client) end(ctx context.Context, by Freeze, key string, revision int64) error {
	if err := c.whileComing(ctx, by, key, revision, clientv3.OpDelete(key), clientv3.OpDelete(freezeKey(c.config.Prefix, by.Cluster))); err != nil {
		return fmt.Errorf("remove logical cluster %s: %w", by.Cluster, err)
	}
	_ = c.revoke(ctx, by) // it has nothing any more, and ends by itself
	return nil
}

// whileComing writes while a logical cluster is one that comes, and a freeze of it holds.
func (c *Client) whileComing(ctx context.Context, by Freeze, key string, revision int64, then ...clientv3.Op) error {
	return c.decide(ctx, append(by.holds(c.config.Prefix), clientv3.Compare(clientv3.ModRevision(key), "=", revision)), ErrThawed, then...)
}
