// Package webhooks bounds what webhooks cost this server. Of those of the operator: how many calls are under way, and
// how long each takes; no goroutine or connection is left behind. Of those that tenants name: where they may be.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Limit is how many calls of one webhook may be under way. A webhook that hangs keeps no more of the server's requests
// waiting than that.
const Limit = 100

// errTooMany says that a webhook is not called because too many calls of it are under way.
var errTooMany = errors.New("too many calls of this webhook are under way")

// errClosed says that the server stops.
var errClosed = errors.New("the server stops and calls no webhooks any more")

// Calls are the calls of one webhook. The zero value is not usable.
type Calls struct {
	timeout time.Duration

	mu     sync.Mutex
	ends   map[int]context.CancelFunc // of calls under way
	number int
	closed bool
	ended  sync.WaitGroup
}

// NewCalls returns calls that may each take timeout, all tries included.
func NewCalls(timeout time.Duration) *Calls {
	return &Calls{timeout: timeout, ends: map[int]context.CancelFunc{}}
}

// Begin begins a call. The caller must call end when it is over.
func (c *Calls) Begin(ctx context.Context) (_ context.Context, end func(), _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, nil, errClosed
	case len(c.ends) >= Limit:
		return nil, nil, fmt.Errorf("%w: %d", errTooMany, Limit)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	c.number++
	number := c.number
	c.ends[number] = cancel
	c.ended.Add(1)
	return ctx, func() {
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ends, number)
		c.ended.Done()
	}, nil
}

// Close ends all calls, waits for them, and lets none begin any more.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	for _, end := range c.ends {
		end()
	}
	c.mu.Unlock()
	c.ended.Wait()
}

// Transport makes each request a call, from its first byte to the last of the answer.
func (c *Calls) Transport(through http.RoundTripper) http.RoundTripper { return &transport{c, through} }

type transport struct {
	calls   *Calls
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, end, err := t.calls.Begin(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.through.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &body{resp.Body, sync.OnceFunc(end)}
	return resp, nil
}

// body ends the call when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
