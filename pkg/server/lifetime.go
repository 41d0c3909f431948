package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/controllers"
)

// lifetime is a context and the goroutines that live in it.
type lifetime struct {
	goroutines
	ctx context.Context
	// end asks all goroutines to end. The cause is why, for the log, the Lease and Events; nil: nobody will ask.
	end context.CancelCauseFunc
}

// Keep runs a function in a goroutine until the lifetime ends.
func (l *lifetime) Keep(name string, run func(context.Context)) {
	l.Go(name, func() error {
		run(l.ctx)
		return nil
	})
}

// goroutines are the named goroutines of a running server.
type goroutines struct {
	// failed is called for each goroutine that returns an error.
	failed func(name string, err error)

	mu      sync.Mutex
	running map[string]int
	ended   sync.WaitGroup
}

// Go runs a function in a goroutine.
func (g *goroutines) Go(name string, run func() error) {
	g.mu.Lock()
	if g.running == nil {
		g.running = map[string]int{}
	}
	g.running[name]++
	g.mu.Unlock()
	g.ended.Go(func() {
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.running[name]--; g.running[name] == 0 {
				delete(g.running, name)
			}
		}()
		if err := run(); err != nil && (!errors.Is(err, context.Canceled) || errors.Is(err, controllers.ErrExit)) {
			g.failed(name, err)
		}
	})
}

// Join waits for all goroutines.
func (g *goroutines) Join() { g.ended.Wait() }

// JoinFor waits for all goroutines, but at most for d, and reports whether all have ended. The caller must call Join
// later.
func (g *goroutines) JoinFor(d time.Duration) bool {
	joined := make(chan struct{})
	go func() {
		g.Join()
		close(joined)
	}()
	select {
	case <-joined:
		return true
	case <-time.After(d):
		return false
	}
}

// Running returns the names of the goroutines that have not ended.
func (g *goroutines) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name := range g.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
