package clusters

import (
	"sync"
	"sync/atomic"

	"github.com/kcp-dev/logicalcluster/v3"
)

// Handler is called with every change of an informer's objects. old is nil for an object that was added, or that
// existed when the handler was added. new is nil for an object that was deleted. An object that was deleted and created
// again causes two calls. Objects are shared: do not modify them.
//
// Calls come one after the other, in the order of the changes, on a goroutine that lives while there are changes: most
// handlers of most ranges wait. A slow handler delays no other; changes wait in memory. A panic in a handler ends the
// process, as in any goroutine. Package loop recovers those of its handlers.
type Handler[T Object] func(old, new T)

type change[T Object] struct{ old, new T }

// cluster returns the logical cluster of the object that has changed.
func (c change[T]) cluster() logicalcluster.Name {
	var none T
	if any(c.new) == any(none) {
		return KeyOf(c.old).Cluster
	}
	return KeyOf(c.new).Cluster
}

// subscription delivers the changes of a range's objects to one handler.
type subscription[T Object] struct {
	of      Range
	handler Handler[T]
	ended   atomic.Bool

	mu         sync.Mutex
	pending    []change[T]
	delivering bool
	all        sync.WaitGroup
}

// push never blocks, because the caller holds the informer's mu.
func (s *subscription[T]) push(changes ...change[T]) {
	if len(changes) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, changes...)
	if !s.delivering {
		s.delivering = true
		s.all.Go(s.deliver)
	}
}

// deliver calls the handler until nothing is pending.
func (s *subscription[T]) deliver() {
	for {
		taken := s.take()
		if len(taken) == 0 {
			return
		}
		for _, c := range taken {
			if !s.ended.Load() {
				s.handler(c.old, c.new)
			}
		}
	}
}

// take returns what is pending. If it returns nothing, the next push starts another goroutine.
func (s *subscription[T]) take() []change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.pending
	s.pending, s.delivering = nil, len(taken) > 0
	return taken
}

// end waits until the handler is not running and will not be called again. Nobody may push any more.
func (s *subscription[T]) end() {
	s.ended.Store(true)
	s.all.Wait()
}
