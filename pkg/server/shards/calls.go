package shards

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Calls sends requests to one shard, over connections that show what the Caller has at the time. A certificate is
// looked at with each request, not only when a connection begins: over a connection that is always in use, and shows a
// certificate that has expired or whose authority is trusted no more, every request would be refused. So new requests
// go over new connections as soon as the Caller has something new. Those that are under way, watches too, go on where
// they are. Make it with Caller.Calls. All methods may be called at any time on any goroutine.
type Calls struct {
	caller             *Caller
	shard, fingerprint string
	connect            func(*tls.Config) (*http.Transport, error)

	mu       sync.Mutex
	with     *call
	current  *http.Transport
	retirees []retiree
}

// retiree is a transport that gets no new requests.
type retiree struct {
	*http.Transport
	since time.Time
}

// Calls returns a transport to one shard. connect makes one for connections as the configuration says; it may be called
// often. fingerprint is as for Verify. The error is that of the first attempt.
func (c *Caller) Calls(shard, fingerprint string, connect func(*tls.Config) (*http.Transport, error)) (*Calls, error) {
	out := &Calls{caller: c, shard: shard, fingerprint: fingerprint, connect: connect}
	_, err := out.now()
	return out, err
}

// RoundTrip implements http.RoundTripper.
func (c *Calls) RoundTrip(req *http.Request) (*http.Response, error) {
	transport, err := c.now()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		// nothing was sent
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("shard %s: %w", c.shard, err)}
	}
	return transport.RoundTrip(req)
}

// now returns the transport for new requests.
func (c *Calls) now() (*http.Transport, error) {
	with, err := c.caller.now()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if with == c.with {
		return c.current, nil
	}
	next, err := c.connect(with.config(c.shard, c.fingerprint))
	if err != nil {
		return nil, err
	}
	c.retire()
	c.with, c.current = with, next
	return next, nil
}

// retire gives the current transport no new requests, and forgets those over whose connections nothing can be under way
// any more: what they show has expired. The caller holds mu.
func (c *Calls) retire() {
	if c.current != nil {
		c.retirees = append(c.retirees, retiree{c.current, time.Now()})
	}
	for _, old := range c.retirees {
		old.CloseIdleConnections()
	}
	c.retirees = slices.DeleteFunc(c.retirees, func(old retiree) bool { return time.Since(old.since) > callValidity })
}

// CloseIdleConnections closes all connections over which nothing is under way.
func (c *Calls) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.retirees {
		old.CloseIdleConnections()
	}
	if c.current != nil {
		c.current.CloseIdleConnections()
	}
}

var _ http.RoundTripper = (*Calls)(nil)
