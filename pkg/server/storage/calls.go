package storage

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// errClosed is the cause of calls that end because the client closes.
var errClosed = errors.New("the etcd client is closed")

// calls ends the calls in flight, reads and writes of stores and the guard's transactions, when the client closes, and
// waits for them. etcd's own client would try again for seconds, up to a hundred times, while the caller's context
// lives.
type calls struct {
	next   kubernetes.Interface
	kv     clientv3.KV // makes the guard's transactions
	closed context.Context
	end    context.CancelCauseFunc
	// Each call holds running for reading. Whoever holds it for writing knows that no call is in flight.
	running sync.RWMutex
}

func newCalls(next kubernetes.Interface, kv clientv3.KV) *calls {
	closed, end := context.WithCancelCause(context.Background())
	return &calls{next: next, kv: kv, closed: closed, end: end}
}

// close ends all calls and returns when none is in flight.
func (c *calls) close() {
	c.end(errClosed)
	c.running.Lock()
	defer c.running.Unlock()
}

// begin returns the context of a call, and a function to call at its end.
func (c *calls) begin(ctx context.Context) (context.Context, func()) {
	c.running.RLock()
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(c.closed, func() { cancel(errClosed) })
	return ctx, func() {
		detach()
		cancel(nil)
		c.running.RUnlock()
	}
}

func (c *calls) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	ctx, done := c.begin(ctx)
	defer done()
	return c.next.Get(ctx, key, opts)
}

func (c *calls) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	ctx, done := c.begin(ctx)
	defer done()
	return c.next.List(ctx, prefix, opts)
}

func (c *calls) Count(ctx context.Context, prefix string, opts kubernetes.CountOptions) (int64, error) {
	ctx, done := c.begin(ctx)
	defer done()
	return c.next.Count(ctx, prefix, opts)
}

func (c *calls) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	ctx, done := c.begin(ctx)
	defer done()
	return c.next.OptimisticPut(ctx, key, value, expected, opts)
}

func (c *calls) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	ctx, done := c.begin(ctx)
	defer done()
	return c.next.OptimisticDelete(ctx, key, expected, opts)
}

var _ kubernetes.Interface = (*calls)(nil)
