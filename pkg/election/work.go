package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// work is one call of a LeadFunc, in a goroutine of its own.
type work struct {
	end      context.CancelCauseFunc // asks it to return
	returned chan struct{}           // closed when it has
	err      error                   // what it returned; readable then

	failing sync.Once
	failed  chan struct{} // closed when it has said that it will fail
	fault   error         // why; readable then
}

// workKey is the context key of a term's work.
type workKey struct{}

// Fail ends the term whose LeadFunc got ctx, or a context derived from it, at once and for the reason that err would
// be if the function returned it. The function must still return. It is for work that has failed and cannot return yet,
// because a part of it does not stop: without it such a term would keep the lease for as long as that part hangs. Only
// the first call counts. In another context, and once the term is over, Fail does nothing.
func Fail(ctx context.Context, err error) {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		w.fail(err)
	}
}

func (w *work) fail(err error) {
	w.failing.Do(func() {
		w.fault = err
		close(w.failed)
	})
}

// begin calls do in a term. Its context does not end with ctx, but only when it is told to: the elector says why.
func begin(ctx context.Context, do LeadFunc, term Term) *work {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &work{end: end, returned: make(chan struct{}), failed: make(chan struct{})}
	ctx = context.WithValue(ctx, workKey{}, w)
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

// causeOfReturn is why a term ends whose function returns err of its own accord.
func causeOfReturn(err error) error {
	switch {
	case err == nil:
		return because(StepDown, "the work is done")
	case errors.Is(err, ErrExit):
		return because(StepDown, "%w", err)
	case errors.Is(err, StepDown), errors.Is(err, Fenced):
		return err
	default:
		return because(Failed, "%w", err)
	}
}

// exit returns the function's error if it asks for the end of the election. Valid once it has returned.
func (w *work) exit() error {
	if errors.Is(w.err, ErrExit) {
		return w.err
	}
	return nil
}
