package etcdfence

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/election/fence"
)

// maxTries bounds how often one write is tried because its Lease keeps changing.
const maxTries = 20

// client stands between upstream's etcd3 stores and etcd. Every change of an object is one of its two writes. Only here
// can a condition be put into the transaction that makes the change.
type client struct {
	kubernetes.Interface // reads, and writes that nothing is compared for
	kv                   interface {
		Txn(context.Context) clientv3.Txn
	}
	guard *Guard
	only  string // begins the keys that are guarded
}

// closed reports whether the client of etcd has been closed.
func (c *client) closed() bool {
	of, ok := c.kv.(interface{ Ctx() context.Context })
	return ok && of.Ctx().Err() != nil
}

// holds reports whether a key is the guard's.
func (c *client) holds(key string) bool { return strings.HasPrefix(key, c.only) }

// OptimisticPut implements all creations and updates.
func (c *client) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if !c.holds(key) {
		return c.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	if l := c.guard.leases.Load(); l != nil && l.has(key) {
		defer c.guard.terms.move(key)()
	}
	resp, err := c.put(ctx, key, value, expected, opts)
	if err == nil && resp.Succeeded {
		c.guard.learn(ctx, key, value, resp.Revision)
	}
	return resp, err
}

func (c *client) put(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	token, put := fence.From(ctx), changeIn(ctx, key, expected, clientv3.OpPut(key, string(value), clientv3.WithLease(opts.LeaseID)))
	put.when = append(put.when, conditionsOf(ctx, expected)...)
	switch {
	case !token.IsZero():
		return c.write(ctx, token, put)
	case put.isAlone():
		return c.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	return c.make(ctx, put)
}

// OptimisticDelete implements all deletions.
func (c *client) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	token, deletion := fence.From(ctx), changeIn(ctx, key, expected, clientv3.OpDelete(key))
	if !c.holds(key) || token.IsZero() && deletion.isAlone() {
		return c.Interface.OptimisticDelete(ctx, key, expected, opts)
	}
	var resp kubernetes.PutResponse
	var err error
	if token.IsZero() {
		resp, err = c.make(ctx, deletion)
	} else {
		resp, err = c.write(ctx, token, deletion)
	}
	return kubernetes.DeleteResponse(resp), err // they have the same fields
}

// change is a write to a key that must be at the expected revision.
type change struct {
	key      string
	expected int64
	then     []clientv3.Op  // the write, and what is changed with it
	when     []clientv3.Cmp // what else must hold
}

// changeIn returns a write that is a part of the transaction in ctx, if there is one.
func changeIn(ctx context.Context, key string, expected int64, op clientv3.Op) change {
	more := transactionOf(ctx)
	return change{key, expected, append([]clientv3.Op{op}, more.Then...), more.When[:len(more.When):len(more.When)]}
}

// isAlone reports whether nothing else is compared or changed with a write.
func (c change) isAlone() bool { return len(c.when) == 0 && len(c.then) == 1 }

// unmet reports whether a write was not made although its key, which holds now, is as expected.
func (c change) unmet(now *mvccpb.KeyValue) bool {
	var revision int64
	if now != nil {
		revision = now.ModRevision
	}
	return len(c.when) > 0 && revision == c.expected
}

// make makes a change without a token that is not alone.
func (c *client) make(ctx context.Context, made change) (kubernetes.PutResponse, error) {
	resp, err := c.commit(ctx, made)
	if err != nil || resp.Succeeded {
		return resp, err
	}
	was, err := c.look(ctx, made.key)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	if made.unmet(was.objects[0]) {
		return kubernetes.PutResponse{}, ErrConditionUnmet
	}
	return kubernetes.PutResponse{KV: was.objects[0], Revision: was.revision}, nil
}

// write makes a change if the token's term is not over. If the key is not as expected, the response has what it holds.
func (c *client) write(ctx context.Context, token fence.Token, made change) (kubernetes.PutResponse, error) {
	tokensChecked.Inc()
	lease, err := c.guard.key(token)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	if made.key != lease { // a renewal need not wait for itself
		c.guard.terms.settle(ctx, lease)
	}
	revision := c.guard.terms.revision(lease, token)
	if revision == 0 {
		if revision, err = c.reread(ctx, token, lease); err != nil {
			return kubernetes.PutResponse{}, err
		}
	}
	for range maxTries {
		resp, err := c.commit(ctx, made, clientv3.Compare(clientv3.ModRevision(lease), "=", revision))
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		if resp.Succeeded {
			noteDecided(ctx)
			return resp, nil
		}
		was, err := c.look(ctx, lease, made.key)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		held, err := c.guard.hold(ctx, token, was.objects[0])
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		// the Lease has not changed: the object's key was not as expected, or a condition does not hold
		if held == revision {
			if made.unmet(was.objects[1]) {
				return kubernetes.PutResponse{}, ErrConditionUnmet
			}
			return kubernetes.PutResponse{KV: was.objects[1], Revision: was.revision}, nil
		}
		revision = held
		guardRetries.Inc()
	}
	return kubernetes.PutResponse{}, givenUp(token)
}

func givenUp(token fence.Token) error {
	return apierrors.NewTimeoutError(fmt.Sprintf(
		"Lease %s/%s changed each of the %d times that this write was tried under its term; nothing was written: renew it less often, and try again",
		token.Namespace, token.Name, maxTries), 1)
}

// commit makes one transaction. If it fails, look finds out why. Asking for that in the transaction itself would make
// every write more expensive, and few fail.
func (c *client) commit(ctx context.Context, made change, also ...clientv3.Cmp) (kubernetes.PutResponse, error) {
	compared := append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(made.key), "=", made.expected)}, also...)
	resp, err := c.kv.Txn(ctx).If(append(compared, made.when...)...).Then(made.then...).Commit()
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	return kubernetes.PutResponse{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}, nil
}

// snapshot is what keys hold at one revision. Nil: the key is absent.
type snapshot struct {
	objects  []*mvccpb.KeyValue
	revision int64
}

// look reads what was compared, after a transaction has failed. A Lease that still has the compared revision had it at
// the time of the transaction, too.
func (c *client) look(ctx context.Context, keys ...string) (snapshot, error) {
	var gets []clientv3.Op
	for _, key := range keys {
		gets = append(gets, clientv3.OpGet(key))
	}
	resp, err := c.kv.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return snapshot{}, fmt.Errorf("the write was not made, and etcd does not tell what has changed: %w", err)
	}
	was := snapshot{make([]*mvccpb.KeyValue, len(keys)), resp.Header.Revision}
	for n, got := range resp.Responses {
		if kvs := got.GetResponseRange().Kvs; len(kvs) > 0 {
			was.objects[n] = kvs[0]
		}
	}
	return was, nil
}

// reread makes a linearizable read of the token's Lease, and returns its revision if it shows the token's term.
func (c *client) reread(ctx context.Context, token fence.Token, lease string) (int64, error) {
	resp, err := c.Get(ctx, lease, kubernetes.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot read the Lease of the fencing token: %w", err)
	}
	return c.guard.hold(ctx, token, resp.KV)
}

var _ kubernetes.Interface = (*client)(nil)
