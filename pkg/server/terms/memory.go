package terms

import (
	"slices"
	"sync"
)

// memory holds the controllers for which this replica has stepped down. It may come to lead again after terms that all
// failed, one of them its own and for the same controller. Then no replica can run all controllers, and a further step down
// would only leave the shard without the others.
type memory struct {
	mu     sync.Mutex
	failed []string
}

// tolerated returns the controllers for which both this replica and its predecessors stepped down.
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

// all returns all that is remembered.
func (m *memory) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failed)
}

// steppedDown remembers controllers.
func (m *memory) steppedDown(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if !slices.Contains(m.failed, name) {
			m.failed = append(m.failed, name)
		}
	}
}

// worked forgets a controller.
func (m *memory) worked(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = slices.DeleteFunc(m.failed, func(other string) bool { return other == name })
}

// forgetAllBut is for the end of a term that lasted: the controllers that did not fail in it are sound.
func (m *memory) forgetAllBut(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = slices.DeleteFunc(m.failed, func(other string) bool { return !slices.Contains(names, other) })
}
