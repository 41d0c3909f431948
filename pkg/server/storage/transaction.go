package storage

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn begins a transaction of the guard, which ends with the client as other calls do.
func (c *calls) Txn(ctx context.Context) clientv3.Txn { return &transaction{calls: c, ctx: ctx} }

// transaction collects what one is made of. It begins when it is committed.
type transaction struct {
	calls      *calls
	ctx        context.Context
	when       []clientv3.Cmp
	then, elze []clientv3.Op
}

func (t *transaction) If(when ...clientv3.Cmp) clientv3.Txn {
	t.when = when
	return t
}

func (t *transaction) Then(then ...clientv3.Op) clientv3.Txn {
	t.then = then
	return t
}

func (t *transaction) Else(elze ...clientv3.Op) clientv3.Txn {
	t.elze = elze
	return t
}

// Commit implements clientv3.Txn.
func (t *transaction) Commit() (*clientv3.TxnResponse, error) {
	ctx, done := t.calls.begin(t.ctx)
	defer done()
	txn := t.calls.kv.Txn(ctx)
	if len(t.when) > 0 {
		txn = txn.If(t.when...)
	}
	return txn.Then(t.then...).Else(t.elze...).Commit()
}
