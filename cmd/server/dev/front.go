package dev

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// readyPeriod is how often each replica is asked whether it is ready, readyTimeout how long it may take to answer.
	readyPeriod  = 250 * time.Millisecond
	readyTimeout = time.Second
	// frontNotices is how long a replica goes on serving after it was asked to stop: long enough for the front to ask it once
	// more.
	frontNotices = 2 * readyPeriod
	// firstPause is the pause after an Accept that failed. Each further pause is twice as long, up to longestPause.
	firstPause, longestPause = 5 * time.Millisecond, time.Second
	// reminder is the least time between two messages that the front is full.
	reminder = time.Minute
)

// front is a plain TCP load balancer: each connection goes to the next replica that is ready. It does not end TLS: the client
// sees the replica's certificate, and the replica sees the client's.
type front struct {
	listener net.Listener
	backends []*backend
	next     atomic.Uint64
	// slots has room for as many connections as may be open at once. Further clients wait in the listener's queue.
	slots chan struct{}
	say   func(format string, args ...any)
	// toldFull is when the front last said that it is full. Only run uses it.
	toldFull time.Time
}

// backend is one replica, as the front sees it.
type backend struct {
	address string
	ready   atomic.Bool
}

// newFront opens a front with room for a number of connections. The front calls say when clients have to wait.
func newFront(address string, connections int, say func(format string, args ...any), backends ...string) (*front, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot open the front: %w", err)
	}
	f := &front{listener: listener, slots: make(chan struct{}, connections), say: say}
	for _, b := range backends {
		f.backends = append(f.backends, &backend{address: b})
	}
	return f, nil
}

// run forwards connections until ctx ends, and returns when all of them are closed. It returns an error if it had to stop for
// another reason.
func (f *front) run(ctx context.Context, client *http.Client) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, b := range f.backends {
		all.Go(func() { b.watch(ctx, client) })
	}
	defer context.AfterFunc(ctx, func() { _ = f.listener.Close() })()
	for f.hasRoom(ctx) {
		c, err := f.accept(ctx)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the front at %s accepts no connections any more: %w", f.listener.Addr(), err)
		}
		all.Go(func() {
			defer func() { <-f.slots }()
			f.forward(ctx, c)
		})
	}
	return nil
}

// hasRoom waits for a free slot and takes it. It returns false if ctx ends first.
func (f *front) hasRoom(ctx context.Context) bool {
	select {
	case f.slots <- struct{}{}:
		return true
	default:
	}
	if time.Since(f.toldFull) > reminder {
		f.toldFull = time.Now()
		f.say("The front at %s has %d connections, as many as this process has file descriptors for: others wait until one ends. More are possible with a higher `ulimit -n`", f.listener.Addr(), cap(f.slots))
	}
	select {
	case f.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// accept returns the next connection. It fails only if ctx has ended or the listener is closed. After any other error, such as
// a lack of file descriptors or a client that has gone, it tries again.
func (f *front) accept(ctx context.Context) (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		c, err := f.listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return c, err
		}
		if pause == firstPause {
			f.say("The front at %s cannot accept a connection and tries again: %v", f.listener.Addr(), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// watch keeps b.ready up to date until ctx ends.
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

// ask reports whether the replica says that it is ready.
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

// dial connects to a ready replica. A replica that refuses the connection counts as not ready from then on.
func (f *front) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	first := f.next.Add(1)
	for i := range f.backends {
		b := f.backends[(first+uint64(i))%uint64(len(f.backends))]
		if !b.ready.Load() {
			continue
		}
		c, err := dialer.DialContext(ctx, "tcp", b.address)
		if err == nil {
			return c, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) { // another error may only mean that this process has no descriptors left
			b.ready.Store(false)
		}
	}
	return nil, fmt.Errorf("none of %d replicas is ready", len(f.backends))
}

// forward copies bytes between a client and a replica, until either side closes or ctx ends.
func (f *front) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := f.dial(ctx)
	if err != nil {
		return // the client sees that its connection is closed and tries again
	}
	closeBoth := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer closeBoth()
	defer context.AfterFunc(ctx, closeBoth)()
	var both sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		// The wrappers hide that these are TCP connections. Otherwise the kernel splices them through a pipe, which takes two
		// more descriptors.
		_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
		closeBoth() // HTTP and TLS do not half-close
	}
	both.Go(func() { copyTo(server, client) })
	both.Go(func() { copyTo(client, server) })
	both.Wait()
}

// newClient returns an HTTP client with connections of its own.
func newClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
}
