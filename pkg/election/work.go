package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// work is one call of a LeadFunc, in a goroutine of its own.
type work struct {
	end      context.CancelCauseFunc // asks it to return
	returned chan struct{}           // closed when it has
	err      error                   // what it returned; readable then
}

// begin calls do in a term. Its context does not end with ctx, but only when it is told to: the elector says why.
func begin(ctx context.Context, do LeadFunc, term Term) *work {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &work{end: end, returned: make(chan struct{})}
	go func() {
		defer close(w.returned)
		w.err = errors.New("the LeadFunc ended its goroutine") // stands if it did
		w.err = contained(ctx, do, term)
	}()
	return w
}

// contained calls do and makes a panic an error, with the stack.
func contained(ctx context.Context, do LeadFunc, term Term) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return do(ctx, term)
}

// join waits for at most d, or without a bound if d is 0, and reports whether the function has returned.
func (w *work) join(d time.Duration) bool {
	var late <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.returned:
		return true
	case <-late:
		return false
	}
}

// cause is why the term ends when the function returns of its own accord. Valid once it has.
func (w *work) cause() error {
	switch {
	case w.err == nil:
		return because(StepDown, "the work is done")
	case errors.Is(w.err, ErrExit):
		return because(StepDown, "%w", w.err)
	case errors.Is(w.err, StepDown), errors.Is(w.err, Fenced):
		return w.err
	default:
		return because(Failed, "%w", w.err)
	}
}

// exit returns the function's error if it asks for the end of the election. Valid once it has returned.
func (w *work) exit() error {
	if errors.Is(w.err, ErrExit) {
		return w.err
	}
	return nil
}
