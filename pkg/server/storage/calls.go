package storage

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/client/v3/kubernetes"
)

// errClosed is the cause of calls that the client's end cuts short.
var errClosed = errors.New("the etcd client is closed")

// calls ends the calls in flight when the client closes, and waits for them. etcd's client would go on trying for
// seconds, up to a hundred times, as long as the caller's own context lives.
type calls struct {
	next   kubernetes.Interface
	closed context.Context
	end    context.CancelCauseFunc
	// running is held for reading by every call. Whoever gets it for writing knows that there is none.
	running sync.RWMutex
}

func newCalls(next kubernetes.Interface) *calls {
	closed, end := context.WithCancelCause(context.Background())
	return &calls{next: next, closed: closed, end: end}
}

// close ends all calls and returns when none is left.
func (c *calls) close() {
	c.end(errClosed)
	c.running.Lock()
	defer c.running.Unlock()
}

// begin returns the context of a call, and what must be called at its end.
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
