package storage

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/election/fence"
)

// maxGuardTries bounds how often one write is tried because its lease was renewed meanwhile.
const maxGuardTries = 20

// guard stands between upstream's etcd3 stores and etcd. Every change of an object is one of its two writes, so here,
// and nowhere above, a condition can be put into the very transaction that makes the change.
//
// A write whose context has a fencing token commits only if the token's lease, at that moment, is as it was when it was
// last seen to be held by that token: the transaction compares the revision of the lease's own key. A check before the
// write would not do, however late: the process may be stopped between the two for longer than the lease lasts. So the
// lease itself is the record of the term, and any Lease serves, whoever wrote it.
//
// A renewal moves that revision too. Then the lease is read again: held by the same token, the write is tried again; by
// another one or by none, it is fenced. A lease that has expired and that nobody took is still its holder's.
type guard struct {
	next  *calls
	kv    clientv3.KV
	terms *terms
}

func (g *guard) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	return g.next.Get(ctx, key, opts)
}

func (g *guard) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return g.next.List(ctx, prefix, opts)
}

func (g *guard) Count(ctx context.Context, prefix string, opts kubernetes.CountOptions) (int64, error) {
	return g.next.Count(ctx, prefix, opts)
}

// OptimisticPut is what creations and updates end in.
func (g *guard) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	token := fence.From(ctx)
	if token.IsZero() {
		return g.next.OptimisticPut(ctx, key, value, expected, opts)
	}
	put := clientv3.OpPut(key, string(value), clientv3.WithLease(opts.LeaseID))
	return outcome[kubernetes.PutResponse](g.write(ctx, token, change{key, expected, put}))
}

// OptimisticDelete is what deletions end in.
func (g *guard) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	token := fence.From(ctx)
	if token.IsZero() {
		return g.next.OptimisticDelete(ctx, key, expected, opts)
	}
	return outcome[kubernetes.DeleteResponse](g.write(ctx, token, change{key, expected, clientv3.OpDelete(key)}))
}

// change is what a write does to a key that is as expected.
type change struct {
	key      string
	expected int64
	op       clientv3.Op
}

// outcome is a write's in the words of its kind. Both have the same fields.
func outcome[T kubernetes.PutResponse | kubernetes.DeleteResponse](resp kubernetes.PutResponse, err error) (T, error) {
	return T(resp), err
}

// write makes a change if the token's term is not over. Without success the response has what the key holds.
func (g *guard) write(ctx context.Context, token fence.Token, c change) (kubernetes.PutResponse, error) {
	tokensChecked.Inc()
	lease, err := g.terms.find(token)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	revision, known := g.terms.revision(token)
	for range maxGuardTries {
		if !known {
			if revision, err = g.reread(ctx, token); err != nil {
				return kubernetes.PutResponse{}, err
			}
		}
		resp, held, err := g.commit(ctx, c, lease, revision)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		if resp.Succeeded || held {
			noteDecided(ctx)
			return resp, nil
		}
		known = false
		guardRetries.Inc()
	}
	return kubernetes.PutResponse{}, apierrors.NewTimeoutError(fmt.Sprintf(
		"Lease %s/%s changed each of the %d times that this write was tried under its term; nothing was written: renew it less often, and try again",
		token.Namespace, token.Name, maxGuardTries), 1)
}

// commit is one transaction. held is whether the lease was at its revision; then it is the object that was not.
func (g *guard) commit(ctx context.Context, c change, lease string, revision int64) (_ kubernetes.PutResponse, held bool, _ error) {
	ctx, done := g.next.begin(ctx)
	defer done()
	resp, err := g.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(c.key), "=", c.expected),
		clientv3.Compare(clientv3.ModRevision(lease), "=", revision),
	).Then(c.op).Else(
		clientv3.OpGet(lease, clientv3.WithKeysOnly()), clientv3.OpGet(c.key),
	).Commit()
	if err != nil {
		return kubernetes.PutResponse{}, false, err
	}
	out := kubernetes.PutResponse{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}
	if resp.Succeeded {
		return out, true, nil
	}
	out.KV = only(resp.Responses[1].GetResponseRange().Kvs)
	kept := only(resp.Responses[0].GetResponseRange().Kvs)
	return out, kept != nil && kept.ModRevision == revision, nil
}

// only is the one key that was read, nil if it does not exist.
func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// check is for writes that etcd need not be told of: whether the token's term goes on, in view of a read that begins now.
func (g *guard) check(ctx context.Context, token fence.Token) error {
	tokensChecked.Inc()
	_, err := g.reread(ctx, token)
	return err
}

// reread reads the token's lease, linearizably, and returns its revision if it shows the token's term.
func (g *guard) reread(ctx context.Context, token fence.Token) (int64, error) {
	began := time.Now()
	shown, revision, err := g.terms.read(ctx, token)
	if err != nil {
		return 0, fmt.Errorf("cannot read the Lease of the fencing token, after %v: %w", time.Since(began).Round(time.Millisecond), err)
	}
	if shown != token {
		return 0, refuse(ctx, token, shown)
	}
	return revision, nil
}

var _ kubernetes.Interface = (*guard)(nil)
