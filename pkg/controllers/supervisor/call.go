package supervisor

import (
	"context"
	"runtime/pprof"

	"github.com/regent-project/regent/pkg/controllers"
)

// label is the profiler label with a controller's name on all its goroutines: goroutines inherit labels from the one
// that starts them.
const label = "controller"

// call runs code of a controller's on a goroutine that bears its label, and waits for it. A panic comes back as an
// error, as does a runtime.Goexit.
func (s *supervision) call(ctx context.Context, name, what string, f func(context.Context) error) error {
	s.enter(name)
	defer s.leave(name)
	err := errGoexit
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value := recover(); value != nil {
				err = controllers.Recovered(what, value)
			}
		}()
		pprof.Do(ctx, pprof.Labels(label, name), func(ctx context.Context) { err = f(ctx) })
	}()
	<-done
	return err
}
