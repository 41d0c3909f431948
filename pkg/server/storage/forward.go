package storage

import (
	"context"
	"sync"
)

// forwarding joins the goroutines of forward. It is ready for use.
type forwarding struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// start runs do on a goroutine and returns true. Once everything is closed, it does nothing and returns false.
func (f *forwarding) start(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Go(do)
	}
	return !f.closed
}

// close returns when nothing runs any more. Upstream may begin a watch while the client is closed: start refuses it.
func (f *forwarding) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
}

// forward returns a channel with what comes from another one, after visit has seen it. It ends with the other one, or
// with ctx. Once running is closed, it returns the other one, from which nothing comes any more.
func forward[T any](ctx context.Context, running *forwarding, from <-chan T, visit func(T)) <-chan T {
	to := make(chan T)
	started := running.start(func() {
		defer close(to)
		for v := range from {
			visit(v)
			select {
			case to <- v:
			case <-ctx.Done():
				// whoever sends ends by ctx, too, and until then waits for somebody who takes the next
				for range from {
				}
				return
			}
		}
	})
	if !started {
		return from
	}
	return to
}
