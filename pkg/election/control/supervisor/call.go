package supervisor

import (
	"context"
	"errors"
	"runtime/pprof"

	"github.com/regent-project/regent/pkg/election/control"
)

// label is the profiler label that has the controller's name on all its goroutines. Goroutines inherit it from the one
// that starts them.
const label = "controller"

var (
	errEarly  = errors.New("returned nil before its context ended: Run must last until then")
	errGoexit = errors.New("ended its goroutine with runtime.Goexit")
	errLate   = errors.New("has not stopped within its drain timeout")
)

// call runs a controller's code on a goroutine with its label. The channel gets its error when that goroutine has
// ended. A panic and a runtime.Goexit become errors.
func (s *supervision) call(ctx context.Context, name, what string, f func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { result <- err }()
		defer func() {
			if value := recover(); value != nil {
				err = control.Recovered(what, value)
			}
		}()
		// The label is for the stacks of late controllers. It cannot tell whether code that has returned left
		// goroutines behind, because connections of the term's clients inherit it, too. So what returns is
		// believed to have joined what it started; package controllertest checks that.
		pprof.Do(ctx, pprof.Labels(label, name), func(ctx context.Context) { err = f(ctx) })
	}()
	return result
}
