package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// spareWarmth is how often the spare connection is used, to keep it open: the server closes what is idle for 90 s.
	spareWarmth = 30 * time.Second
	// sparePause is waited before the next one is made: a term that has just begun has better things to do.
	sparePause = 5 * time.Second
	// spareTimeout bounds a request that opens it or keeps it open.
	spareTimeout = 5 * time.Second
)

// spare keeps the next term's loopback, with its connection open: a TLS handshake takes several milliseconds, and would
// come right before the term's first write. Nobody makes a request with it before the term that takes it.
type spare struct {
	host  *rest.Config
	token string // of the leader's user
	ready atomic.Pointer[loopback]
	// warmer is the token of the user who keeps it open.
	warmer string
}

// take returns the spare, nil if there is none. It is the caller's.
func (s *spare) take() *loopback { return s.ready.Swap(nil) }

// run makes one whenever there is none, until ctx ends; then none is left. started is closed when the API serves.
func (s *spare) run(ctx context.Context, started <-chan struct{}) {
	defer func() {
		if l := s.take(); l != nil {
			l.close()
		}
	}()
	select {
	case <-ctx.Done():
		return
	case <-started:
	}
	every := time.NewTicker(sparePause)
	defer every.Stop()
	used := time.Now()
	for ctx.Err() == nil {
		switch l := s.ready.Load(); {
		case l == nil:
			s.open(ctx)
			used = time.Now()
		case time.Since(used) >= spareWarmth:
			s.use(ctx, l)
			used = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
}

// open makes one.
func (s *spare) open(ctx context.Context) {
	l, err := newLoopback(s.host, s.token)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The next term makes its connection itself")
		return
	}
	s.use(ctx, l)
	s.ready.Store(l)
}

// use opens the connection, or keeps it open. If that fails, the term opens it.
func (s *spare) use(ctx context.Context, l *loopback) {
	ctx, cancel := context.WithTimeout(ctx, spareTimeout)
	defer cancel()
	if err := l.touch(ctx, s.warmer); err != nil {
		klog.FromContext(ctx).V(2).Info("The next term's connection is not open", "err", err)
	}
}

// touch makes a request that asks for nothing. Without a token the server would close the connection.
func (l *loopback) touch(ctx context.Context, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.config.Host+"/livez/ping", http.NoBody)
	if err != nil {
		return fmt.Errorf("a request over the loopback: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := l.door.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("a request over the loopback: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("the answer to a request over the loopback: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("a request over the loopback: %s", resp.Status)
	}
	return nil
}
