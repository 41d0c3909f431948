package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How a call is tried: firstTry and secondTry are how long the first two tries wait for their answers, before another member of
// etcd gets its chance. The last one waits for as long as the caller does: an etcd that is slow for everybody is not asked ever
// more. Failures that come sooner are tried again every tryAgain, until tryingEnds after the beginning.
const (
	firstTry   = time.Second
	secondTry  = 2 * time.Second
	tryAgain   = 100 * time.Millisecond
	tryingEnds = 5 * time.Second
)

// tries is a KV that bounds each try of a call, so that one member of etcd that hangs, or a request that was lost when etcd's
// raft leader died, costs a call a short stall. etcd's own client waits for as long as the caller does, and tries no write twice.
//
// A read of one key is always tried again. So is a transaction that writes one key on condition that the key is at a revision:
// of several tries of it one at most is executed, whenever it arrives, because it ends the condition of the others. When a later
// try fails, an earlier one may have been executed: then the key tells. If it does not, the answer is an error that says that
// the outcome is not known. A creation is no such transaction: the key may be deleted before a late try arrives, which would
// bring it back. So it is sent once, and the key is read if no answer comes.
//
// Ranges are not bounded: long lists take their time.
type tries struct {
	clientv3.KV
}

// Get tries a read of one key again.
func (t *tries) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet(key, opts...).RangeBytes() != nil {
		return t.KV.Get(ctx, key, opts...)
	}
	return try(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return t.KV.Get(ctx, key, opts...) })
}

func (t *tries) Txn(ctx context.Context) clientv3.Txn { return &triedTxn{kv: t, ctx: ctx} }

// try calls call until it answers, fails for a reason that another try cannot mend, or the time is up.
func try[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	began, patience := time.Now(), firstTry
	for {
		answer, err := bounded(ctx, patience, call)
		switch {
		case err == nil, ctx.Err() != nil, !unanswered(err), patience == 0 && time.Since(began) >= tryingEnds:
			return answer, err
		case errors.Is(err, context.DeadlineExceeded):
			patience = nextPatience(patience)
		default:
			if time.Since(began) >= tryingEnds || !pause(ctx, tryAgain) {
				return answer, err
			}
		}
	}
}

// nextPatience is how long the try waits that follows one that waited for d; 0 is without an end.
func nextPatience(d time.Duration) time.Duration {
	if d == firstTry {
		return secondTry
	}
	return 0
}

// bounded is one try. A deadline of its own that has passed is a DeadlineExceeded error, also if the server noticed it first.
func bounded[T any](ctx context.Context, patience time.Duration, call func(context.Context) (T, error)) (T, error) {
	if patience == 0 {
		return call(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := call(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return answer, err
}

// unanswered reports whether err leaves open what etcd has done, or will do.
func unanswered(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var said rpctypes.EtcdError
	if errors.As(err, &said) {
		return said.Code() == codes.Unavailable || said.Code() == codes.DeadlineExceeded
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// pause waits for d, and reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// triedTxn is one transaction.
type triedTxn struct {
	kv    *tries
	ctx   context.Context
	conds []clientv3.Cmp
	then  []clientv3.Op
	other []clientv3.Op
}

func (t *triedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.conds = append(t.conds, cs...)
	return t
}

func (t *triedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *triedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.other = append(t.other, ops...)
	return t
}

func (t *triedTxn) send(ctx context.Context) (*clientv3.TxnResponse, error) {
	txn := t.kv.KV.Txn(ctx)
	if len(t.conds) > 0 {
		txn = txn.If(t.conds...)
	}
	txn = txn.Then(t.then...)
	if len(t.other) > 0 {
		txn = txn.Else(t.other...)
	}
	return txn.Commit()
}

// Commit sends the transaction as often as it may be.
func (t *triedTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.reads() {
		return try(t.ctx, t.send)
	}
	expected, known := t.expected()
	if !known {
		return t.send(t.ctx)
	}
	doubt := error(nil) // that of a try that may have been executed
	send := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := t.send(ctx)
		if err != nil && unanswered(err) {
			doubt = err
		}
		return resp, err
	}
	var resp *clientv3.TxnResponse
	var err error
	if expected == 0 {
		resp, err = send(t.ctx)
	} else {
		resp, err = try(t.ctx, send)
	}
	switch {
	case doubt == nil, err == nil && resp.Succeeded, t.ctx.Err() != nil, err != nil && !unanswered(err):
		return resp, err
	default:
		return t.resolve(expected, resp, doubt)
	}
}

// reads reports whether the transaction changes nothing.
func (t *triedTxn) reads() bool {
	for _, ops := range [][]clientv3.Op{t.then, t.other} {
		for _, op := range ops {
			if !op.IsGet() {
				return false
			}
		}
	}
	return true
}

// expected is the revision at which the one key must be that the transaction writes; known is false for any other transaction.
func (t *triedTxn) expected() (revision int64, known bool) {
	if len(t.then) != 1 || t.then[0].IsTxn() || t.then[0].RangeBytes() != nil {
		return 0, false
	}
	for i := range t.conds {
		c := t.conds[i].GetCompare()
		if c.Target == pb.Compare_MOD && c.Result == pb.Compare_EQUAL && bytes.Equal(c.Key, t.then[0].KeyBytes()) {
			return c.GetModRevision(), true
		}
	}
	return 0, false
}

// resolve finds out from the key what became of a transaction of which a try was not answered. failed is the answer to a later
// try, nil if there was none.
func (t *triedTxn) resolve(expected int64, failed *clientv3.TxnResponse, doubt error) (*clientv3.TxnResponse, error) {
	op := t.then[0]
	resp, err := t.kv.Get(t.ctx, string(op.KeyBytes()))
	if err != nil {
		return nil, unknown(doubt)
	}
	switch {
	case len(resp.Kvs) == 0:
		return nil, unknown(doubt)
	case op.IsPut() && resp.Kvs[0].ModRevision > expected && bytes.Equal(resp.Kvs[0].Value, op.ValueBytes()):
		header := &pb.ResponseHeader{ClusterId: resp.Header.ClusterId, MemberId: resp.Header.MemberId, RaftTerm: resp.Header.RaftTerm, Revision: resp.Kvs[0].ModRevision}
		return &clientv3.TxnResponse{Header: header, Succeeded: true}, nil
	case failed != nil && expected > 0 && resp.Kvs[0].ModRevision == expected: // another condition failed, and does for every try
		return failed, nil
	default:
		return nil, unknown(doubt)
	}
}

// unknown is the error of a write of which nobody can tell whether it was made.
func unknown(doubt error) error {
	return fmt.Errorf("%w: %w", apierrors.NewTimeoutError("etcd did not answer, and the object does not tell whether this write was made: read it, and try again", 1), doubt)
}

var _ clientv3.KV = (*tries)(nil)
