package survey

import (
	"context"
	"sync"
	"time"
)

// fresh is for how long an answer is given again. Many pages and scripts may ask at the same time, and cost one
// question together.
const fresh = 250 * time.Millisecond

// cache is an answer that all share who ask for it at about the same time. The zero value is ready.
type cache[T any] struct {
	mu       sync.Mutex
	value    T
	of       string
	until    time.Time     // the value is fresh until then
	question chan struct{} // closed when the question that is under way is answered; nil: none is
}

// get returns the answer of ask, or one that is fresh. An answer is fresh only while of, the state that it is an
// answer about, is the same. Only one call of ask runs at a time, on the goroutine of whoever came first. It does not
// end if that one goes away, but after a time (within). Whoever goes away before gets the zero value.
func (s *cache[T]) get(ctx context.Context, within time.Duration, of string, ask func(context.Context) T) (answer T) {
	for {
		s.mu.Lock()
		if s.of == of && time.Now().Before(s.until) {
			defer s.mu.Unlock()
			return s.value
		}
		running := s.question
		if running == nil {
			s.question = make(chan struct{})
			s.mu.Unlock()
			return s.ask(ctx, within, of, ask)
		}
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return answer
		}
	}
}

func (s *cache[T]) ask(ctx context.Context, within time.Duration, of string, ask func(context.Context) T) T {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	defer func() { // also after a panic
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.question)
		s.question = nil
	}()
	answer := ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.of, s.until = answer, of, time.Now().Add(fresh)
	return answer
}
