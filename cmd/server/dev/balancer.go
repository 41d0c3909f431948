package dev

import (
	"context"
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
	// readyPeriod is how often each backend is asked whether it is ready, readyTimeout how long it may take to
	// answer.
	readyPeriod  = 250 * time.Millisecond
	readyTimeout = time.Second
	// balancerNotices is how long a backend goes on serving after it was asked to stop: long enough for the
	// balancer to ask it once more.
	balancerNotices = 2 * readyPeriod
	// firstPause is the pause after an Accept that failed. Each further pause is twice as long, up to longestPause.
	firstPause, longestPause = 5 * time.Millisecond, time.Second
	// reminder is the least time between two messages that the balancer is full.
	reminder = time.Minute
)

// balancer is a plain TCP load balancer: each connection goes to the next backend that is ready: to a replica of a lone
// shard, or to a front. It does not end TLS: the client sees the backend's certificate, and the backend sees the
// client's.
type balancer struct {
	listener net.Listener
	backends []*backend
	next     atomic.Uint64
	// slots has room for as many connections as may be open at once. Further clients wait in the listener's queue.
	slots chan struct{}
	say   func(format string, args ...any)
	// toldFull is when the balancer last said that it is full. Only run uses it.
	toldFull time.Time
}

// backend is one replica or front, as the balancer sees it.
type backend struct {
	address string
	ready   atomic.Bool
}

// newBalancer opens a balancer with room for a number of connections. The balancer calls say when clients have to wait.
func newBalancer(address string, connections int, say func(format string, args ...any), backends ...string) (*balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot open the balancer: %w", err)
	}
	lb := &balancer{listener: listener, slots: make(chan struct{}, connections), say: say}
	for _, b := range backends {
		lb.backends = append(lb.backends, &backend{address: b})
	}
	return lb, nil
}

// run forwards connections until ctx ends, and returns when all of them are closed. It returns an error if it had to
// stop for another reason.
func (lb *balancer) run(ctx context.Context, client *http.Client) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, b := range lb.backends {
		all.Go(func() { b.watch(ctx, client) })
	}
	defer context.AfterFunc(ctx, func() { _ = lb.listener.Close() })()
	for lb.hasRoom(ctx) {
		c, err := lb.accept(ctx)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the balancer at %s accepts no connections any more: %w", lb.listener.Addr(), err)
		}
		all.Go(func() {
			defer func() { <-lb.slots }()
			lb.forward(ctx, c)
		})
	}
	return nil
}

// hasRoom waits for a free slot and takes it. It returns false if ctx ends first.
func (lb *balancer) hasRoom(ctx context.Context) bool {
	select {
	case lb.slots <- struct{}{}:
		return true
	default:
	}
	if time.Since(lb.toldFull) > reminder {
		lb.toldFull = time.Now()
		lb.say("The balancer at %s has %d connections, as many as this process has file descriptors for: others wait until one ends. More are possible with a higher `ulimit -n`", lb.listener.Addr(), cap(lb.slots))
	}
	select {
	case lb.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// accept returns the next connection. It fails only if ctx has ended or the listener is closed. After any other error,
// such as a lack of file descriptors or a client that has gone, it tries again.
func (lb *balancer) accept(ctx context.Context) (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		c, err := lb.listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return c, err
		}
		if pause == firstPause {
			lb.say("The balancer at %s cannot accept a connection and tries again: %v", lb.listener.Addr(), err)
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

// ask reports whether the backend says that it is ready.
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

// dial connects to a ready backend. One that refuses the connection counts as not ready from then on.
func (lb *balancer) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	first := lb.next.Add(1)
	for i := range lb.backends {
		b := lb.backends[(first+uint64(i))%uint64(len(lb.backends))]
		if !b.ready.Load() {
			continue
		}
		c, err := dialer.DialContext(ctx, "tcp", b.address)
		if err == nil {
			return c, nil
		}
		// another error may only mean that this process has no descriptors left
		if errors.Is(err, syscall.ECONNREFUSED) {
			b.ready.Store(false)
		}
	}
	return nil, fmt.Errorf("none of %d backends is ready", len(lb.backends))
}

// forward copies bytes between a client and a backend, until either side closes or ctx ends.
func (lb *balancer) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := lb.dial(ctx)
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
		// The wrappers hide that these are TCP connections. Otherwise the kernel splices them through a pipe,
		// which takes two more descriptors.
		_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
		closeBoth() // HTTP and TLS do not half-close
	}
	both.Go(func() { copyTo(server, client) })
	both.Go(func() { copyTo(client, server) })
	both.Wait()
}
