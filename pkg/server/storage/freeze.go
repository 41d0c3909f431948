package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/clusters"
)

// FreezeTTL is how long a freeze lasts if nobody renews it.
const FreezeTTL = 10 * time.Second

// Freeze is one freeze of a logical cluster: until it ends, nothing is written in the cluster but by Write. It ends by
// Thaw, or when it was not renewed for FreezeTTL, whatever has become of who began it.
//
// It is a key of etcd, with a lease of etcd, that each write of the cluster compares in its own transaction. So it
// holds for all replicas, from the revision on at which it begins, also for those that know nothing of it yet. All must
// be of a version that compares it.
type Freeze struct {
	Cluster logicalcluster.Name
	// Revision is that of etcd at which it began. What the cluster has then, nobody changes.
	Revision int64
	lease    clientv3.LeaseID
}

// ID is what ParseFreeze reads.
func (f Freeze) ID() string { return fmt.Sprintf("%x-%x", int64(f.lease), f.Revision) }

// ParseFreeze returns the freeze of a cluster that has an ID.
func ParseFreeze(cluster logicalcluster.Name, id string) (Freeze, error) {
	lease, revision, ok := strings.Cut(id, "-")
	l, err := strconv.ParseInt(lease, 16, 64)
	r, malformed := strconv.ParseInt(revision, 16, 64)
	if !ok || err != nil || malformed != nil || l <= 0 || r <= 0 {
		return Freeze{}, fmt.Errorf("%q names no freeze", id)
	}
	return Freeze{cluster, r, clientv3.LeaseID(l)}, nil
}

// ErrFrozen is of a logical cluster that somebody else has frozen, ErrNoCluster of one that is not there, and ErrThawed
// of a freeze that has ended: others may have written since.
var (
	ErrFrozen    = errors.New("the logical cluster is frozen already: somebody puts it back")
	ErrNoCluster = errors.New("the shard has no such logical cluster")
	ErrThawed    = errors.New("the freeze of the logical cluster has ended, because it was not renewed in time or by somebody else")
)

// freezeKey is the key of etcd that is there while a logical cluster is frozen. Its value says why.
func freezeKey(prefix string, cluster logicalcluster.Name) string {
	return prefix + "/.frozen/" + cluster.String()
}

// isThawed holds while a logical cluster is not frozen.
func isThawed(prefix string, cluster logicalcluster.Name) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(freezeKey(prefix, cluster)), "=", 0)
}

// holds holds while the freeze does. It compares the lease, too: an ID comes from outside, and a lease that is renewed
// or revoked must be no other one, such as that of Events.
func (f Freeze) holds(prefix string) []clientv3.Cmp {
	key := freezeKey(prefix, f.Cluster)
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", f.Revision), clientv3.Compare(clientv3.LeaseValue(key), "=", f.lease)}
}

// Freeze freezes a logical cluster. why is told to those whose writes wait, and ends the sentence "its writes wait,
// because". An error may wrap ErrFrozen or ErrNoCluster.
func (c *Client) Freeze(ctx context.Context, cluster logicalcluster.Name, why string) (Freeze, error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	if clusters.IsSystem(cluster) {
		return Freeze{}, fmt.Errorf("%w: %s is the shard's own, and cannot be frozen", ErrNoCluster, cluster)
	}
	object, err := c.clusterObjects.Load().key(cluster)
	if err != nil {
		return Freeze{}, err
	}
	return c.freeze(ctx, cluster, why, clientv3.Compare(clientv3.CreateRevision(object), ">", 0))
}

// freeze freezes a logical cluster if a comparison holds, and does something else in the same transaction. The error
// wraps ErrNoCluster if it does not hold.
func (c *Client) freeze(ctx context.Context, cluster logicalcluster.Name, why string, when clientv3.Cmp, then ...clientv3.Op) (_ Freeze, err error) {
	lease, err := c.etcd.Grant(ctx, int64(FreezeTTL/time.Second))
	if err != nil {
		return Freeze{}, fmt.Errorf("ask etcd for a lease: %w", err)
	}
	f := Freeze{Cluster: cluster, lease: lease.ID}
	defer func() {
		if err != nil { // an answer may be lost, and the cluster be frozen
			_ = c.revoke(context.WithoutCancel(ctx), f)
		}
	}()
	key := freezeKey(c.config.Prefix, cluster)
	made, err := c.etcd.Txn(ctx).
		If(isThawed(c.config.Prefix, cluster), when).
		Then(append(then, clientv3.OpPut(key, why, clientv3.WithLease(lease.ID)))...).
		Else(clientv3.OpGet(key, clientv3.WithCountOnly())).Commit()
	switch {
	case err != nil:
		return Freeze{}, fmt.Errorf("freeze logical cluster %s: %w", cluster, err)
	case !made.Succeeded && made.Responses[0].GetResponseRange().Count == 0:
		return Freeze{}, fmt.Errorf("%w: %s", ErrNoCluster, cluster)
	case !made.Succeeded:
		return Freeze{}, fmt.Errorf("%w: %s", ErrFrozen, cluster)
	}
	f.Revision = made.Header.Revision
	return f, nil
}

// Renew has a freeze last for FreezeTTL from now on. An error wraps ErrThawed if it has ended.
func (c *Client) Renew(ctx context.Context, f Freeze) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	held, err := c.etcd.Txn(ctx).If(f.holds(c.config.Prefix)...).Then(clientv3.OpGet(freezeKey(c.config.Prefix, f.Cluster), clientv3.WithCountOnly())).Commit()
	if err == nil && !held.Succeeded {
		err = ErrThawed
	}
	if err == nil {
		_, err = c.etcd.KeepAliveOnce(ctx, f.lease)
	}
	if err != nil {
		return fmt.Errorf("renew the freeze of %s: %w", f.Cluster, thawedBy(err))
	}
	return nil
}

// Thaw ends a freeze, and returns the newest revision at which it still held. An error wraps ErrThawed if it had ended
// before.
func (c *Client) Thaw(ctx context.Context, f Freeze) (through int64, err error) {
	ctx, done := c.calls.begin(ctx)
	defer done()
	key := freezeKey(c.config.Prefix, f.Cluster)
	ended, err := c.etcd.Txn(ctx).If(f.holds(c.config.Prefix)...).Then(clientv3.OpDelete(key)).Commit()
	if err == nil && !ended.Succeeded {
		err = ErrThawed
	}
	if err != nil {
		return 0, fmt.Errorf("thaw logical cluster %s: %w", f.Cluster, err)
	}
	_ = c.revoke(ctx, f) // it has nothing any more, and ends by itself
	return ended.Header.Revision - 1, nil
}

// revokeTimeout is how long the end of a lease is waited for that would end by itself.
const revokeTimeout = time.Second

func (c *Client) revoke(ctx context.Context, f Freeze) error {
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	_, err := c.etcd.Revoke(ctx, f.lease)
	return err
}

// thawedBy returns ErrThawed for the error of a lease that is over.
func thawedBy(err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return ErrThawed
	}
	return err
}

// Write writes objects of a frozen cluster as they are, with their uids, and deletes others, by their keys, some in
// each transaction, in no order. Nothing is checked but that they can be stored: neither are admission and rights, and
// nor are quotas. An error wraps ErrThawed if the freeze has ended; some objects may have been written.
func (c *Client) Write(ctx context.Context, f Freeze, objects []Stored, deletions []string) error {
	ctx, done := c.calls.begin(ctx)
	defer done()
	expire, err := c.expiry(ctx, objects)
	if err != nil {
		return err
	}
	err = c.loadAll(ctx, f.holds(c.config.Prefix), func(take func(StoredIn) error) error {
		for _, s := range objects {
			if err := take(StoredIn{Cluster: f.Cluster, Stored: s, expires: expire(s.Key)}); err != nil {
				return err
			}
		}
		for _, key := range deletions {
			if err := take(StoredIn{Cluster: f.Cluster, Stored: Stored{Key: key}, Gone: true}); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errUnmet) {
		return fmt.Errorf("%w (%w)", ErrThawed, err)
	}
	return err
}

// expiry returns a function that returns the lease with which an object expires, by its key: Events do. 0: it stays.
func (c *Client) expiry(ctx context.Context, objects []Stored) (func(key string) clientv3.LeaseID, error) {
	expires := func(key string) bool { return strings.HasPrefix(key, eventKeys) }
	if !slices.ContainsFunc(objects, func(s Stored) bool { return expires(s.Key) }) {
		return func(string) clientv3.LeaseID { return 0 }, nil
	}
	lease, err := c.etcd.Grant(ctx, int64(clusters.EventTTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("ask etcd for a lease of Events: %w", err)
	}
	return func(key string) clientv3.LeaseID {
		if !expires(key) {
			return 0
		}
		return lease.ID
	}, nil
}
