package supervisor

import (
	"slices"
	"sync"
)

// memory remembers the controllers for which this replica has stepped down. The lease may come back to it because the
// other replicas stepped down for the same controllers. Then no replica can run them, and stepping down again would
// only stop the healthy controllers.
type memory struct {
	mu     sync.Mutex
	failed []string
}

// tolerated returns the controllers for which both this replica and its predecessors have stepped down.
func (m *memory) tolerated(predecessors []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var both []string
	for _, name := range m.failed {
		if slices.Contains(predecessors, name) {
			both = append(both, name)
		}
	}
	return both
}

// all returns the controllers for which this replica has stepped down.
func (m *memory) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failed)
}

// steppedDown records controllers for which this replica steps down.
func (m *memory) steppedDown(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if !slices.Contains(m.failed, name) {
			m.failed = append(m.failed, name)
		}
	}
}

// worked forgets a controller that works again.
func (m *memory) worked(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = slices.DeleteFunc(m.failed, func(other string) bool { return other == name })
}

// forgetAllBut forgets all other controllers. It is called when a long term ends: what did not fail in it works.
func (m *memory) forgetAllBut(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = slices.DeleteFunc(m.failed, func(other string) bool { return !slices.Contains(names, other) })
}
