package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/etcdfence"
)

// thawPatience is how long a write waits for its logical cluster to thaw.
const thawPatience = 10 * time.Second

// thawed makes each write only if its logical cluster is not frozen at that moment: see Freeze. It is above the guard.
//
// Clients' writes wait. Writes of the process's own controllers are refused at once, so that a controller decides
// again: what it has decided by, such as that an owner is gone, may be about to come back.
type thawed struct {
	kubernetes.Interface
	calls   *calls
	watcher clientv3.Watcher
	prefix  string
	isOwn   func(context.Context) bool
}

// OptimisticPut implements all creations and updates.
func (t *thawed) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (resp kubernetes.PutResponse, err error) {
	err = t.whenThawed(ctx, func(ctx context.Context) error {
		resp, err = t.Interface.OptimisticPut(ctx, key, value, expected, opts)
		return err
	})
	return resp, err
}

// OptimisticDelete implements all deletions.
func (t *thawed) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (resp kubernetes.DeleteResponse, err error) {
	err = t.whenThawed(ctx, func(ctx context.Context) error {
		resp, err = t.Interface.OptimisticDelete(ctx, key, expected, opts)
		return err
	})
	return resp, err
}

// othersUnmet is how often a write finds its conditions unmet, and its logical cluster not frozen, before it is taken
// to be another condition that does not hold. Each of the first times it may have thawed in between.
const othersUnmet = 3

// whenThawed makes a write once the logical cluster of the request is not frozen. A condition that does not hold may be
// this one or another: what etcd has tells.
func (t *thawed) whenThawed(ctx context.Context, write func(context.Context) error) error {
	cluster := clusterIn(ctx)
	if cluster == "" || clusters.IsSystem(cluster) { // these are never frozen
		return write(ctx)
	}
	held := etcdfence.WithTransaction(ctx, etcdfence.Transaction{When: []clientv3.Cmp{isThawed(t.prefix, cluster)}})
	var latest time.Time
	for unmet := 0; ; {
		err := write(held)
		if !errors.Is(err, ErrConditionUnmet) {
			return err
		}
		why, to, revision, unread := t.reason(ctx, cluster)
		switch {
		case unread != nil:
			return unread
		case to != clusters.Move{}:
			return &clusters.MovedError{Cluster: cluster, To: to}
		case why == "":
			if unmet++; unmet == othersUnmet {
				return err
			}
			continue
		case t.isOwn(ctx): // without a time to try again, so that the client does not do that by itself
			return frozen(cluster, why)
		case latest.IsZero():
			latest = time.Now().Add(thawPatience)
		}
		if !t.await(ctx, latest, cluster, revision) {
			refused := frozen(cluster, why)
			refused.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
			return refused
		}
	}
}

// frozen returns the answer to a write that does not wait, or not any longer.
func frozen(cluster logicalcluster.Name, why string) *apierrors.StatusError {
	return apierrors.NewServiceUnavailable(fmt.Sprintf(
		"nothing was written: the writes in logical cluster %s wait, because %s; try again in some seconds", cluster, why))
}

// reason returns why a logical cluster is frozen, or where it has moved, and the revision of etcd at which that was
// read. Without a reason it is not frozen.
func (t *thawed) reason(ctx context.Context, cluster logicalcluster.Name) (why string, to clusters.Move, revision int64, err error) {
	ctx, done := t.calls.begin(ctx)
	defer done()
	there, err := t.calls.kv.Get(ctx, freezeKey(t.prefix, cluster))
	if err != nil {
		return "", to, 0, fmt.Errorf("find out whether logical cluster %s is frozen: %w", cluster, err)
	}
	if len(there.Kvs) > 0 {
		why, to = cmp.Or(string(there.Kvs[0].Value), "it is frozen"), movedTo(there.Kvs[0])
	}
	return why, to, there.Header.Revision, nil
}

// await waits until the freeze of a logical cluster has changed since a revision, or cannot be watched any more. It
// returns false if the time is up before.
func (t *thawed) await(ctx context.Context, latest time.Time, cluster logicalcluster.Name, revision int64) bool {
	ctx, done := t.calls.begin(ctx)
	defer done()
	ctx, cancel := context.WithDeadline(clientv3.WithRequireLeader(ctx), latest)
	changes := t.watcher.Watch(ctx, freezeKey(t.prefix, cluster), clientv3.WithRev(revision+1))
	<-changes
	late := ctx.Err() != nil
	cancel()
	for range changes { // until it is closed
		continue
	}
	return !late
}

var _ kubernetes.Interface = (*thawed)(nil)
