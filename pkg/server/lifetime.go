package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

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
	within  []func() []string
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

// NameWithin has Running also return what of a goroutine runs, which within names.
func (g *goroutines) NameWithin(within func() []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.within = append(g.within, within)
}

// Running returns the names of the goroutines that have not ended, after those of what runs within them.
func (g *goroutines) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names, parts []string
	for _, within := range g.within {
		parts = append(parts, within()...)
	}
	for name := range g.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return append(parts, names...)
}

// firstReminder is how long waitFor waits before it first logs what it waits for. Each further pause is twice as long.
const firstReminder = 10 * time.Second

// waitFor waits until all channels are closed, and returns false if ctx ends first. It logs the channels that take
// long.
func waitFor(ctx context.Context, all map[string]<-chan struct{}) bool {
	began, reminder := time.Now(), firstReminder
	timer := time.NewTimer(reminder)
	defer timer.Stop()
	for _, c := range all {
		for waiting := true; waiting; {
			select {
			case <-c:
				waiting = false
			case <-ctx.Done():
				return false
			case <-timer.C:
				klog.FromContext(ctx).Info("Still waiting, before controllers can run", "for", pending(all), "since", time.Since(began).Round(time.Second))
				reminder *= 2
				timer.Reset(reminder)
			}
		}
	}
	return true
}

// pending returns the names of the channels that are not closed, sorted.
func pending(all map[string]<-chan struct{}) []string {
	var names []string
	for name, c := range all {
		select {
		case <-c:
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
