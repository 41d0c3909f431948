package dev

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readyPeriod is how often each replica is asked whether it is ready, readyTimeout how long it may take to answer.
	readyPeriod  = 250 * time.Millisecond
	readyTimeout = time.Second
)

// front is a plain TCP load balancer: each connection goes to the next replica that is ready. It knows no TLS, so that
// clients see the replica's certificate and the replica the client's.
type front struct {
	listener net.Listener
	backends []*backend
	next     atomic.Uint64
}

// backend is one replica, as the front sees it.
type backend struct {
	address string
	ready   atomic.Bool
}

func newFront(address string, backends ...string) (*front, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot open the front: %w", err)
	}
	f := &front{listener: listener}
	for _, b := range backends {
		f.backends = append(f.backends, &backend{address: b})
	}
	return f, nil
}

// run forwards until ctx ends, or until it can accept no more, and returns when all connections are closed. It returns
// an error if ctx was not the reason.
func (f *front) run(ctx context.Context, client *http.Client) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, b := range f.backends {
		all.Go(func() { b.watch(ctx, client) })
	}
	defer context.AfterFunc(ctx, func() { _ = f.listener.Close() })()
	for {
		c, err := f.listener.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the front at %s accepts no connections any more: %w", f.listener.Addr(), err)
		}
		all.Go(func() { f.forward(ctx, c) })
	}
}

// watch keeps ready up to date.
func (b *backend) watch(ctx context.Context, client *http.Client) {
	tick := time.NewTicker(readyPeriod)
	defer tick.Stop()
	for {
		b.ready.Store(b.ask(ctx, client))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *backend) ask(ctx context.Context, client *http.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+b.address+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// dial connects to a ready replica. One that has just died is found out by its refusal.
func (f *front) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	first := f.next.Add(1)
	for i := range f.backends {
		b := f.backends[(first+uint64(i))%uint64(len(f.backends))]
		if !b.ready.Load() {
			continue
		}
		if c, err := dialer.DialContext(ctx, "tcp", b.address); err == nil {
			return c, nil
		}
		b.ready.Store(false)
	}
	return nil, fmt.Errorf("none of %d replicas is ready", len(f.backends))
}

// forward carries one connection, until either side or ctx ends.
func (f *front) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := f.dial(ctx)
	if err != nil {
		return // the client finds its connection closed, and tries again
	}
	closeBoth := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer closeBoth()
	defer context.AfterFunc(ctx, closeBoth)()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		closeBoth() // HTTP and TLS do not half-close
	}
	both.Go(func() { copyTo(server, client) })
	both.Go(func() { copyTo(client, server) })
	both.Wait()
}

// newClient returns a client for replicas, with connections of its own.
func newClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
}
