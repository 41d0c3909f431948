package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/controllers"
)

// parts are the named goroutines of a running server. It joins them, and knows who has not ended.
type parts struct {
	// failed is told the error of each part that ends with one.
	failed func(name string, err error)

	mu      sync.Mutex
	running map[string]int
	ended   sync.WaitGroup
}

// Go runs a part in a goroutine.
func (p *parts) Go(name string, run func() error) {
	p.mu.Lock()
	if p.running == nil {
		p.running = map[string]int{}
	}
	p.running[name]++
	p.mu.Unlock()
	p.ended.Go(func() {
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.running[name]--; p.running[name] == 0 {
				delete(p.running, name)
			}
		}()
		if err := run(); err != nil && (!errors.Is(err, context.Canceled) || errors.Is(err, controllers.ErrExit)) {
			p.failed(name, err)
		}
	})
}

// Join waits for all parts.
func (p *parts) Join() { p.ended.Wait() }

// JoinFor waits for all parts, but not longer than d. It reports whether they have ended. Join must follow.
func (p *parts) JoinFor(d time.Duration) bool {
	joined := make(chan struct{})
	go func() {
		p.Join()
		close(joined)
	}()
	select {
	case <-joined:
		return true
	case <-time.After(d):
		return false
	}
}

// Running names the parts that have not ended.
func (p *parts) Running() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name := range p.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lateControllers are the controllers that did not stop in time, and still have not.
type lateControllers struct {
	mu      sync.Mutex
	byScope map[controllers.Scope][]string
}

func (l *lateControllers) add(scope controllers.Scope, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byScope == nil {
		l.byScope = map[controllers.Scope][]string{}
	}
	l.byScope[scope] = append(l.byScope[scope], name)
}

func (l *lateControllers) clear(scope controllers.Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byScope, scope)
}

// names returns them as a reader finds them in the log.
func (l *lateControllers) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, names := range l.byScope {
		for _, name := range names {
			out = append(out, fmt.Sprintf("controller %q", name))
		}
	}
	slices.Sort(out)
	return out
}

// LateError says that a server did not stop in time. Goroutines of its late parts are alive: the process should end.
type LateError struct {
	Timeout time.Duration
	Late    []string
}

func (e *LateError) Error() string {
	return fmt.Sprintf("not stopped after %v: still waiting for %s", e.Timeout.Round(time.Millisecond), strings.Join(e.Late, ", "))
}
