package server

import (
	"slices"
	"sync"
)

// poison remembers for which controllers this replica has stepped down. If it comes to lead again after nothing but terms
// that failed, its own for the same among them, then nobody can run all, and to step down again would only leave the
// shard without the others.
type poison struct {
	mu    sync.Mutex
	parts []string
}

// tolerated returns the controllers that both this replica and its predecessors stepped down for.
func (p *poison) tolerated(predecessors []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var both []string
	for _, part := range p.parts {
		if slices.Contains(predecessors, part) {
			both = append(both, part)
		}
	}
	return both
}

// all returns all that is remembered.
func (p *poison) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.parts)
}

// steppedDown remembers controllers.
func (p *poison) steppedDown(parts []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range parts {
		if !slices.Contains(p.parts, part) {
			p.parts = append(p.parts, part)
		}
	}
}

// worked forgets a controller.
func (p *poison) worked(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts = slices.DeleteFunc(p.parts, func(other string) bool { return other == part })
}

// forgetAllBut is for the end of a term that lasted: whatever failed in none of it is well.
func (p *poison) forgetAllBut(parts []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts = slices.DeleteFunc(p.parts, func(other string) bool { return !slices.Contains(parts, other) })
}
