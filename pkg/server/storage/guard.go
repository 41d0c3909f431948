package storage

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/election/fence"
)

// maxGuardTries bounds how often one write is tried because its Lease keeps changing.
const maxGuardTries = 20

// guard stands between upstream's etcd3 stores and etcd. Every change of an object is one of its two writes. Only here can a
// condition be put into the transaction that makes the change.
//
// A write with a fencing token in its context commits only if the token's Lease has not changed since guard last saw it show
// the token's term: the transaction compares the revision of the Lease's key. A check before the write would not do, because
// the process may be stopped between the check and the write for longer than the lease lasts. No other record of terms is
// needed, so any Lease can be used, whoever wrote it.
//
// A renewal changes that revision too. Then guard reads the Lease again. If it still shows the token's term, the write is tried
// again; otherwise it is fenced. A Lease that has expired and that nobody has taken still belongs to its holder.
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

// OptimisticPut implements all creations and updates.
func (g *guard) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	token := fence.From(ctx)
	if token.IsZero() {
		return g.next.OptimisticPut(ctx, key, value, expected, opts)
	}
	put := clientv3.OpPut(key, string(value), clientv3.WithLease(opts.LeaseID))
	return g.write(ctx, token, change{key, expected, put})
}

// OptimisticDelete implements all deletions.
func (g *guard) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	token := fence.From(ctx)
	if token.IsZero() {
		return g.next.OptimisticDelete(ctx, key, expected, opts)
	}
	resp, err := g.write(ctx, token, change{key, expected, clientv3.OpDelete(key)})
	return kubernetes.DeleteResponse(resp), err // they have the same fields
}

// change is a write to a key that must be at the expected revision.
type change struct {
	key      string
	expected int64
	op       clientv3.Op
}

// write makes a change if the token's term is not over. If the key is not as expected, the response has what it holds.
func (g *guard) write(ctx context.Context, token fence.Token, c change) (kubernetes.PutResponse, error) {
	tokensChecked.Inc()
	lease, err := g.terms.find(token)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	if c.key != lease { // a renewal need not wait for itself
		g.terms.settle(ctx, lease)
	}
	revision := g.terms.revision(token)
	if revision == 0 {
		if revision, err = g.reread(ctx, token); err != nil {
			return kubernetes.PutResponse{}, err
		}
	}
	for range maxGuardTries {
		resp, err := g.commit(ctx, c, lease, revision)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		if resp.Succeeded {
			noteDecided(ctx)
			return resp, nil
		}
		was, err := g.look(ctx, lease, c.key)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		held, err := g.hold(ctx, token, was.lease)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		if held == revision { // the Lease has not changed: the object's key was not as expected
			return kubernetes.PutResponse{KV: was.object, Revision: was.revision}, nil
		}
		revision = held
		guardRetries.Inc()
	}
	return kubernetes.PutResponse{}, apierrors.NewTimeoutError(fmt.Sprintf(
		"Lease %s/%s changed each of the %d times that this write was tried under its term; nothing was written: renew it less often, and try again",
		token.Namespace, token.Name, maxGuardTries), 1)
}

// commit makes one transaction. If it fails, look finds out why. Asking for that in the transaction itself would make every
// write more expensive, and few fail.
func (g *guard) commit(ctx context.Context, c change, lease string, revision int64) (kubernetes.PutResponse, error) {
	ctx, done := g.next.begin(ctx)
	defer done()
	resp, err := g.kv.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(c.key), "=", c.expected),
		clientv3.Compare(clientv3.ModRevision(lease), "=", revision),
	).Then(c.op).Commit()
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	return kubernetes.PutResponse{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}, nil
}

// seen is what two keys hold at one revision. Nil: the key is absent.
type seen struct {
	lease, object *mvccpb.KeyValue
	revision      int64
}

// look reads the Lease and the object after a transaction has failed. A Lease that still has the compared revision had it at
// the time of the transaction, too.
func (g *guard) look(ctx context.Context, lease, object string) (seen, error) {
	ctx, done := g.next.begin(ctx)
	defer done()
	resp, err := g.kv.Txn(ctx).Then(clientv3.OpGet(lease), clientv3.OpGet(object)).Commit()
	if err != nil {
		return seen{}, fmt.Errorf("the write was not made, and etcd does not tell whether for its Lease or its object: %w", err)
	}
	only := func(i int) *mvccpb.KeyValue {
		if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			return kvs[0]
		}
		return nil
	}
	return seen{only(0), only(1), resp.Header.Revision}, nil
}

// check returns an error unless the token's term goes on, by a read that begins now. It is for writes that never reach etcd.
func (g *guard) check(ctx context.Context, token fence.Token) error {
	tokensChecked.Inc()
	_, err := g.reread(ctx, token)
	return err
}

// reread makes a linearizable read of the token's Lease, and returns its revision if it shows the token's term.
func (g *guard) reread(ctx context.Context, token fence.Token) (int64, error) {
	lease, err := g.terms.find(token)
	if err != nil {
		return 0, err
	}
	resp, err := g.next.Get(ctx, lease, kubernetes.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot read the Lease of the fencing token: %w", err)
	}
	return g.hold(ctx, token, resp.KV)
}

// hold returns the revision of a Lease if it shows the token's term. Otherwise it returns the error that refuses the write.
func (g *guard) hold(ctx context.Context, token fence.Token, lease *mvccpb.KeyValue) (int64, error) {
	var shown fence.Token
	if lease != nil {
		var err error
		if shown, err = g.terms.read(ctx, lease); err != nil {
			return 0, err
		}
	}
	if shown != token {
		return 0, refuse(ctx, token, shown)
	}
	return lease.ModRevision, nil
}

var _ kubernetes.Interface = (*guard)(nil)
