package join

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// plant is a goroutine of a random tree.
type plant struct {
	how      string // it is started
	until    string // it lives
	labels   bool   // it adds labels of its own
	early    int    // undo functions that it registers at once
	late     int    // those that it registers when the context has ended
	faulty   bool   // its first undo function panics
	children []plant
}

func plants(depth int) *rapid.Generator[plant] {
	return rapid.Custom(func(t *rapid.T) plant {
		p := plant{
			how:    rapid.SampledFrom([]string{"go", "go", "afterfunc", "inner scope"}).Draw(t, "how"),
			until:  rapid.SampledFrom([]string{"now", "context", "gate"}).Draw(t, "until"),
			labels: rapid.Bool().Draw(t, "labels"),
			early:  rapid.IntRange(0, 2).Draw(t, "early"),
			late:   rapid.IntRange(0, 1).Draw(t, "late"),
			faulty: rapid.IntRange(0, 9).Draw(t, "faulty") == 0,
		}
		if depth > 0 {
			p.children = rapid.SliceOfN(plants(depth-1), 0, 3).Draw(t, "children")
		}
		return p
	})
}

// garden grows the trees of one scope, and records what happens.
type garden struct {
	gate  chan struct{}
	alive atomic.Int64

	mu         sync.Mutex
	ending     bool
	registered []registration
	undone     []int
}

type registration struct{ early, outer bool }

// end is called before the scope ends: what is registered later may be undone in between.
func (g *garden) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = true
}

// register is done by the goroutine that the undo function belongs to.
func (g *garden) register(outer, faulty bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.registered)
	g.registered = append(g.registered, registration{early: !g.ending, outer: outer})
	OnEnd(func() {
		g.mu.Lock()
		g.undone = append(g.undone, n)
		g.mu.Unlock()
		if faulty {
			panic("undo")
		}
	})
}

func (g *garden) grow(ctx context.Context, p plant, inner bool) {
	g.alive.Add(1)
	switch p.how {
	case "go":
		go g.live(ctx, p, inner)
	case "afterfunc":
		context.AfterFunc(ctx, func() { g.live(ctx, p, inner) })
	case "inner scope":
		go func() {
			defer g.alive.Add(-1)
			g.alive.Add(1)
			defer func() { _ = recover() }()
			_ = Run(ctx, quiet, func(ctx context.Context) error { g.live(ctx, p, true); return nil })
		}()
	}
}

func (g *garden) live(ctx context.Context, p plant, inner bool) {
	defer g.alive.Add(-1)
	if p.labels {
		pprof.Do(ctx, pprof.Labels("plant", p.how), func(ctx context.Context) { g.bloom(ctx, p, inner) })
		return
	}
	g.bloom(ctx, p, inner)
}

func (g *garden) bloom(ctx context.Context, p plant, inner bool) {
	for n := range p.early {
		g.register(!inner, p.faulty && n == 0)
	}
	for _, child := range p.children {
		g.grow(ctx, child, inner)
	}
	if p.until != "now" {
		<-ctx.Done()
		for range p.late {
			g.register(!inner, false)
		}
	}
	if p.until == "gate" {
		<-g.gate
	}
}

// check returns what is wrong when all is over: everything undone once, and what the outermost scope was given before
// its end, in reverse.
func (g *garden) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.alive.Load(); n != 0 {
		return fmt.Errorf("%d goroutines have not ended", n)
	}
	if all := slices.Sorted(slices.Values(g.undone)); len(slices.Compact(all)) != len(g.undone) || len(all) != len(g.registered) {
		return fmt.Errorf("undone: %v of %d", g.undone, len(g.registered))
	}
	var order []int
	for _, n := range g.undone {
		if r := g.registered[n]; r.early && r.outer {
			order = append(order, n)
		}
	}
	if slices.Reverse(order); !slices.IsSorted(order) {
		return fmt.Errorf("not undone in reverse: %v", g.undone)
	}
	return nil
}

// gated reports whether a tree has a goroutine that lives until the gate opens, and that starts before the context
// ends.
func gated(p plant) bool {
	return p.until == "gate" || slices.ContainsFunc(p.children, gated)
}

func TestEndReturnsWhenAllOfATreeHasEndedAndIsUndoneOnceInReverse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trees := rapid.SliceOfN(rapid.SliceOfN(plants(2), 0, 3), 2, 2).Draw(rt, "scopes")
		var gardens [2]*garden
		var opened [2]*Scope
		for n, tree := range trees {
			g, s := &garden{gate: make(chan struct{})}, New(context.Background(), quiet)
			s.Do(func(ctx context.Context) {
				for _, p := range tree {
					g.grow(ctx, p, false)
				}
			})
			gardens[n], opened[n] = g, s
		}
		for n, s := range opened { // the second still lives while the first ends
			g := gardens[n]
			g.end()
			done := ends(func() {
				defer func() { _ = recover() }() // a faulty undo function
				s.End()
			})
			if slices.ContainsFunc(trees[n], gated) {
				staysOpen(t, "End has returned", done)
			}
			close(g.gate)
			mustEnd(t, "the end of a scope", done)
			if err := g.check(); err != nil {
				rt.Fatal(err)
			}
			if left := s.Running(); len(left) > 0 {
				rt.Fatalf("left: %v", left)
			}
		}
	})
}
