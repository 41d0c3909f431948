package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/clusters"
)

// A logical cluster that moves to another shard (see clusters.Move) is frozen on its own shard by Leave, and on the
// other one it comes: see Come. Depart is the write that decides. From then on the freeze has no lease, and never ends.
// Each write here compares the revision of the LogicalCluster that was decided by.

// eventKeys and clusterKeys begin the keys of Events and LogicalClusters.
const eventKeys, clusterKeys = "core/events/", "core.kcp.io/logicalclusters/"

// ErrDecided is of a LogicalCluster that has changed since it was read: decide anew.
var ErrDecided = errors.New("the LogicalCluster has changed meanwhile")

// movedPrefix begins the value of the freeze of a logical cluster that has moved. The clusters.Move follows.
const movedPrefix = "moved to "

// Leave freezes a logical cluster that may move to another shard, as its LogicalCluster says from then on: see
// clusters.LeavingAnnotation. revision is that of the LogicalCluster before. An error may wrap ErrFrozen or ErrDecided.
func (c *Client) Leave(ctx context.Context, cluster logicalcluster.Name, lc Stored, revision int64, why string) (Freeze, error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, cluster, lc)
	if err != nil {
		return Freeze{}, err
	}
	f, err := c.freeze(ctx, cluster, why, clientv3.Compare(clientv3.ModRevision(key), "=", revision), put)
	if errors.Is(err, ErrNoCluster) {
		err = fmt.Errorf("%w: %s", ErrDecided, cluster)
	}
	return f, err
}

// Stay ends a freeze that Leave has begun: the logical cluster stays on this shard. An error wraps ErrThawed if the
// freeze has ended, or if the logical cluster has moved.
func (c *Client) Stay(ctx context.Context, f Freeze, lc Stored) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, f.Cluster, lc)
	if err != nil {
		return err
	}
	err = c.decide(ctx, append(f.holds(c.config.Prefix), clientv3.Compare(clientv3.ModRevision(key), "=", f.Revision)), ErrThawed,
		put, clientv3.OpDelete(freezeKey(c.config.Prefix, f.Cluster)))
	if err == nil {
		_ = c.revoke(ctx, f) // it has nothing any more, and ends by itself
	}
	return err
}

// Remain writes the LogicalCluster of one that was to move, whose freeze has ended: it can move no more. An error wraps
// ErrFrozen while the freeze goes on, and ErrDecided if the LogicalCluster has changed.
func (c *Client) Remain(ctx context.Context, cluster logicalcluster.Name, lc Stored, revision int64) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, cluster, lc)
	if err != nil {
		return err
	}
	return c.whileThawed(ctx, cluster, clientv3.Compare(clientv3.ModRevision(key), "=", revision), put)
}

// whileThawed does something if a logical cluster is not frozen, and a comparison of its LogicalCluster holds. An error
// wraps ErrFrozen, or ErrDecided.
func (c *Client) whileThawed(ctx context.Context, cluster logicalcluster.Name, is clientv3.Cmp, then ...clientv3.Op) error {
	made, err := c.etcd.Txn(ctx).If(isThawed(c.config.Prefix, cluster), is).Then(then...).
		Else(clientv3.OpGet(freezeKey(c.config.Prefix, cluster), clientv3.WithCountOnly())).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("write LogicalCluster %s: %w", cluster, err)
	case made.Succeeded:
		return nil
	case made.Responses[0].GetResponseRange().Count > 0:
		return fmt.Errorf("%w: %s", ErrFrozen, cluster)
	}
	return fmt.Errorf("%w: %s", ErrDecided, cluster)
}

// Depart makes a logical cluster that Leave has frozen one of another shard, as its LogicalCluster says from then on:
// see clusters.MovedAnnotation. An error wraps ErrThawed if the freeze has ended.
func (c *Client) Depart(ctx context.Context, f Freeze, lc Stored, to clusters.Move) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, f.Cluster, lc)
	if err != nil {
		return err
	}
	return c.decide(ctx, append(f.holds(c.config.Prefix), clientv3.Compare(clientv3.ModRevision(key), "=", f.Revision)), ErrThawed,
		put, clientv3.OpPut(freezeKey(c.config.Prefix, f.Cluster), movedPrefix+to.String()))
}

// Concede makes a logical cluster that is here one of another shard, which has had it since the etcd here was restored,
// as its LogicalCluster says from then on: see clusters.MovedAnnotation. revision is that of the LogicalCluster before.
// An error wraps ErrFrozen while it is frozen, and ErrDecided if the LogicalCluster has changed.
func (c *Client) Concede(ctx context.Context, cluster logicalcluster.Name, lc Stored, revision int64, to clusters.Move) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, cluster, lc)
	if err != nil {
		return err
	}
	return c.whileThawed(ctx, cluster, clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		put, clientv3.OpPut(freezeKey(c.config.Prefix, cluster), movedPrefix+to.String()))
}

// Return makes a logical cluster that has moved one that is here again, as its LogicalCluster says from then on: the
// other shard has lost it. revision is that of the LogicalCluster before. An error wraps ErrDecided if that has
// changed.
func (c *Client) Return(ctx context.Context, cluster logicalcluster.Name, lc Stored, revision int64, from clusters.Move) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, cluster, lc)
	if err != nil {
		return err
	}
	frozen := freezeKey(c.config.Prefix, cluster)
	return c.decide(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", revision), clientv3.Compare(clientv3.Value(frozen), "=", movedPrefix+from.String()),
	}, ErrDecided, put, clientv3.OpDelete(frozen))
}

// Complete says of a logical cluster that comes that all is there: see clusters.CompleteAnnotation. revision is that of
// its LogicalCluster. An error wraps ErrThawed if the freeze has ended.
func (c *Client) Complete(ctx context.Context, f Freeze, lc Stored, revision int64) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, f.Cluster, lc)
	if err != nil {
		return err
	}
	return c.decide(ctx, append(f.holds(c.config.Prefix), clientv3.Compare(clientv3.ModRevision(key), "=", revision)), ErrThawed, put)
}

// Arrive makes a logical cluster that comes from another shard one that is there, and ends the freeze. revision is that
// of its LogicalCluster, which must be complete, and the other shard must have said that it has departed. An error
// wraps ErrThawed if the freeze has ended.
func (c *Client) Arrive(ctx context.Context, f Freeze, lc Stored, revision int64) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, f.Cluster, lc)
	if err != nil {
		return err
	}
	err = c.decide(ctx, append(f.holds(c.config.Prefix), clientv3.Compare(clientv3.ModRevision(key), "=", revision)), ErrThawed,
		put, clientv3.OpDelete(freezeKey(c.config.Prefix, f.Cluster)))
	if err == nil {
		_ = c.revoke(ctx, f) // it has nothing any more, and ends by itself
	}
	return err
}

// Reclaim freezes a logical cluster that comes, once whoever had begun it has died: it arrives under this freeze, or is
// discarded. revision is that of its LogicalCluster. An error may wrap ErrFrozen or ErrDecided.
func (c *Client) Reclaim(ctx context.Context, cluster logicalcluster.Name, revision int64) (Freeze, error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	key, err := c.clusterObjects.Load().key(cluster)
	if err != nil {
		return Freeze{}, err
	}
	f, err := c.freeze(ctx, cluster, "it is found out whether it comes from another shard", clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	if errors.Is(err, ErrNoCluster) {
		err = fmt.Errorf("%w: %s", ErrDecided, cluster)
	}
	return f, err
}

// Interrupt ends the freeze of a logical cluster that comes, whoever has begun it: that goes on no more. revision is
// that of its LogicalCluster. An error wraps ErrDecided if that has changed.
func (c *Client) Interrupt(ctx context.Context, cluster logicalcluster.Name, revision int64) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	key, err := c.clusterObjects.Load().key(cluster)
	if err != nil {
		return err
	}
	return c.decide(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}, ErrDecided, clientv3.OpDelete(freezeKey(c.config.Prefix, cluster)))
}

// Vacate removes all that a logical cluster has that has moved. revision is that of its LogicalCluster, which says so,
// and lc says that objects may be gone from then on: see clusters.VacatedAnnotation. An error wraps ErrDecided if the
// LogicalCluster has changed. If it fails, some objects may be gone, and it may be called again.
func (c *Client) Vacate(ctx context.Context, cluster logicalcluster.Name, lc Stored, revision int64) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	put, key, err := c.putOf(ctx, cluster, lc)
	if err != nil {
		return err
	}
	begun, err := c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(put).Commit()
	if err == nil && !begun.Succeeded {
		err = ErrDecided
	}
	if err != nil {
		return fmt.Errorf("begin to remove what logical cluster %s has: %w", cluster, err)
	}
	revision = begun.Header.Revision
	while := func(ctx context.Context, ops ...clientv3.Op) error {
		return c.decide(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}, ErrDecided, ops...)
	}
	if err := c.removeAll(ctx, cluster, key, func(context.Context) error { return nil }, while); err != nil {
		return err
	}
	return while(ctx, clientv3.OpDelete(key), clientv3.OpDelete(freezeKey(c.config.Prefix, cluster)))
}

// putOf returns what writes a LogicalCluster, and its key.
func (c *Client) putOf(ctx context.Context, cluster logicalcluster.Name, lc Stored) (put clientv3.Op, key string, err error) {
	put, err = c.opOf(ctx, StoredIn{Cluster: cluster, Stored: lc})
	return put, string(put.KeyBytes()), err
}

// decide does something if all comparisons hold, and otherwise returns an error that wraps unmet.
func (c *Client) decide(ctx context.Context, when []clientv3.Cmp, unmet error, then ...clientv3.Op) error {
	made, err := c.etcd.Txn(ctx).If(when...).Then(then...).Commit()
	if err == nil && !made.Succeeded {
		err = unmet
	}
	return err
}

// Count returns how many objects a logical cluster has, without its LogicalCluster, and without Events, which expire.
func (c *Client) Count(ctx context.Context, cluster logicalcluster.Name) (n int64, err error) {
	var reads []clientv3.Op
	for _, r := range c.storedResources() {
		prefix, err := clusters.StorageKey(r.prefix, r.prefix, cluster)
		if err != nil {
			return 0, err
		}
		if r.name() != eventKeys && r.name() != clusterKeys {
			reads = append(reads, clientv3.OpGet(c.config.Prefix+prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()))
		}
	}
	for some := range slices.Chunk(reads, opsAtOnce) {
		answer, err := c.calls.Txn(ctx).Then(some...).Commit()
		if err != nil {
			return 0, fmt.Errorf("count what logical cluster %s has: %w", cluster, err)
		}
		for _, found := range answer.Responses {
			n += found.GetResponseRange().Count
		}
	}
	return n, nil
}

// movedTo returns where a logical cluster has moved, by its freeze. It is zero for one that is only frozen.
func movedTo(freeze *mvccpb.KeyValue) clusters.Move {
	if freeze == nil || freeze.Lease != 0 {
		return clusters.Move{}
	}
	to, ok := strings.CutPrefix(string(freeze.Value), movedPrefix)
	shard, id, named := strings.Cut(to, "/")
	if !ok || !named {
		return clusters.Move{}
	}
	return clusters.Move{Shard: shard, ID: id}
}
