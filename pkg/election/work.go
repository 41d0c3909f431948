package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// work is one call of a LeadFunc, on a goroutine of its own.
type work struct {
	end      context.CancelCauseFunc // ends the call's context
	returned chan struct{}           // closed when the call has returned
	err      error                   // what it returned; set before returned is closed

	failing sync.Once
	failed  chan struct{} // closed by the first call of fail
	fault   error         // why; set before failed is closed
}

// workKey is the context key of *work.
type workKey struct{}

// Fail ends the current term at once, as if its LeadFunc had returned err. ctx is the context that the LeadFunc got, or
// one derived from it. Use it when the work has failed, but the function cannot return yet because a part of it does
// not stop: otherwise the term would keep the lease until that part has stopped. The function must still return. Only
// the first call has an effect. With any other context, and after the end of the term, Fail does nothing, except that
// an error which wraps ErrExit still ends the election.
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

// prepare returns the work of a term, and the function that begins it by calling do. The call's context does not end
// with ctx: the elector ends it, with the cause of the term's end.
func prepare(ctx context.Context, do LeadFunc, term Term) (w *work, begin func()) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	w = &work{end: end, returned: make(chan struct{}), failed: make(chan struct{})}
	ctx = context.WithValue(ctx, workKey{}, w)
	return w, func() {
		go func() {
			defer close(w.returned)
			// remains if do called runtime.Goexit
			w.err = errors.New("the LeadFunc ended its goroutine with runtime.Goexit")
			w.err = contained(ctx, do, term)
		}()
	}
}

// contained calls do, and turns a panic into an error with the stack.
func contained(ctx context.Context, do LeadFunc, term Term) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return do(ctx, term)
}

// join waits until the function has returned, and reports whether it has. It waits for d at most; 0 means without a
// bound.
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

// causeOfReturn returns the cause of the end of a term whose function has returned err by itself.
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

// exit returns the error that ends the election: what the function has returned, or what Fail was called with, if it
// wraps ErrExit. Call it after the function has returned.
func (w *work) exit() error {
	if errors.Is(w.err, ErrExit) {
		return w.err
	}
	select {
	case <-w.failed:
		if errors.Is(w.fault, ErrExit) {
			return w.fault
		}
	default:
	}
	return nil
}

// leftover returns the error of a function that has returned after the end of its term, if nobody has heard of it yet:
// not the end of its context, nor why the term has ended, nor what ends the election.
func (w *work) leftover(cause error) error {
	if w.err == nil || errors.Is(w.err, context.Canceled) || errors.Is(w.err, ErrExit) || errors.Is(cause, w.err) || errors.Is(w.err, cause) {
		return nil
	}
	return w.err
}
