package clusters

import (
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
)

// Handler is called with every change of an informer's objects. old is nil for an object that was added, or that
// existed when the handler was added. new is nil for an object that was deleted. An object that was deleted and created
// again causes two calls. Objects are shared: do not modify them.
//
// Calls come one after the other, in the order of the changes, on a goroutine of the handler's own. A slow handler
// delays no other; changes wait in memory. A panic in a handler ends the process, as in any goroutine. Package loop
// recovers those of its handlers.
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

	mu      sync.Mutex
	pending []change[T]

	// wake holds a token while pending may be non-empty.
	wake       chan struct{}
	stop, done chan struct{}
}

func subscribe[T Object](of Range, h Handler[T]) *subscription[T] {
	s := &subscription[T]{
		of:      of,
		handler: h,
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	go s.deliver()
	return s
}

// push never blocks, because the caller holds the informer's mu.
func (s *subscription[T]) push(changes ...change[T]) {
	if len(changes) == 0 {
		return
	}
	s.mu.Lock()
	s.pending = append(s.pending, changes...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription[T]) take() []change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.pending
	s.pending = nil
	return taken
}

func (s *subscription[T]) deliver() {
	defer close(s.done)
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		for _, c := range s.take() {
			select {
			case <-s.stop:
				return
			default:
				s.handler(c.old, c.new)
			}
		}
	}
}

// end waits until the handler is not running and will not be called again.
func (s *subscription[T]) end() {
	close(s.stop)
	<-s.done
}
