package clusters

import "sync"

// Handler is told of every change to an informer's objects: old is nil for one that was added (or there when the
// handler came), new is nil for one that was deleted. An object that was deleted and created again under its name is
// told as a deletion and an addition. Objects are shared: do not modify.
//
// Calls come one after the other, in the order of the changes, on a goroutine of the handler's own. A slow handler
// delays nobody else; what it has not taken yet is kept in memory. A panic in a handler ends the process, as in any
// goroutine: package loop's handlers contain theirs.
type Handler[T Object] func(old, new T)

type change[T Object] struct{ old, new T }

// subscription delivers changes to one handler.
type subscription[T Object] struct {
	handler Handler[T]

	mu      sync.Mutex
	pending []change[T]

	// wake holds a token while pending may be non-empty.
	wake       chan struct{}
	stop, done chan struct{}
}

func subscribe[T Object](h Handler[T]) *subscription[T] {
	s := &subscription[T]{
		handler: h,
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	go s.deliver()
	return s
}

// push never blocks: it is called under the informer's lock.
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

// end returns when the handler is not running and will not run again.
func (s *subscription[T]) end() {
	close(s.stop)
	<-s.done
}
