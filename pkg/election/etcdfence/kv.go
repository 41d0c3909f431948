package etcdfence

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/election/fence"
)

// KV returns a KV that makes what kv would make, and holds puts, deletions and transactions to the tokens in their
// contexts. It is for what a server writes into etcd past its stores. A refusal is an error for which fence.IsFenced
// holds. A transaction is held whatever it does; Get and Compact are not.
func (g *Guard) KV(kv clientv3.KV) clientv3.KV { return &heldKV{KV: kv, guard: g} }

type heldKV struct {
	clientv3.KV
	guard *Guard
}

// Put implements clientv3.KV.
func (h *heldKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	resp, err := h.Do(ctx, clientv3.OpPut(key, value, opts...))
	return resp.Put(), err
}

// Delete implements clientv3.KV.
func (h *heldKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	resp, err := h.Do(ctx, clientv3.OpDelete(key, opts...))
	return resp.Del(), err
}

// Txn implements clientv3.KV.
func (h *heldKV) Txn(ctx context.Context) clientv3.Txn { return &heldTxn{kv: h, ctx: ctx} }

// heldTxn collects what a transaction is made of.
type heldTxn struct {
	kv         *heldKV
	ctx        context.Context
	when       []clientv3.Cmp
	then, elze []clientv3.Op
}

func (t *heldTxn) If(when ...clientv3.Cmp) clientv3.Txn {
	t.when = when
	return t
}

func (t *heldTxn) Then(then ...clientv3.Op) clientv3.Txn {
	t.then = then
	return t
}

func (t *heldTxn) Else(elze ...clientv3.Op) clientv3.Txn {
	t.elze = elze
	return t
}

// Commit implements clientv3.Txn.
func (t *heldTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.kv.Do(t.ctx, clientv3.OpTxn(t.when, t.then, t.elze))
	return resp.Txn(), err
}

// Do implements clientv3.KV.
func (h *heldKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	token := fence.From(ctx)
	if token.IsZero() || op.IsGet() {
		return h.KV.Do(ctx, op)
	}
	made, err := h.make(ctx, token, op)
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	header, only := made.Header, made.Responses[0]
	switch {
	case op.IsPut():
		resp := (*clientv3.PutResponse)(only.GetResponsePut())
		resp.Header = header
		return resp.OpResponse(), nil
	case op.IsDelete():
		resp := (*clientv3.DeleteResponse)(only.GetResponseDeleteRange())
		resp.Header = header
		return resp.OpResponse(), nil
	default:
		resp := (*clientv3.TxnResponse)(only.GetResponseTxn())
		resp.Header = header
		return resp.OpResponse(), nil
	}
}

// make makes an operation as a part of a transaction that compares the Lease.
func (h *heldKV) make(ctx context.Context, token fence.Token, op clientv3.Op) (*clientv3.TxnResponse, error) {
	tokensChecked.Inc()
	lease, err := h.guard.key(token)
	if err != nil {
		return nil, err
	}
	h.guard.terms.settle(ctx, lease)
	revision := h.guard.terms.revision(lease, token)
	if revision == 0 {
		revision = -1 // no key is at that one, and absent ones are at 0
	}
	for range maxTries {
		resp, err := h.KV.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(lease), "=", revision)).Then(op).Else(clientv3.OpGet(lease)).Commit()
		if err != nil {
			return nil, err
		}
		if resp.Succeeded {
			noteDecided(ctx)
			return resp, nil
		}
		var shown *mvccpb.KeyValue
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			shown = kvs[0]
		}
		if revision, err = h.guard.hold(ctx, token, shown); err != nil {
			return nil, err
		}
	}
	return nil, givenUp(token)
}

var _ clientv3.KV = (*heldKV)(nil)
