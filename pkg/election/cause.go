package election

import (
	"errors"
	"fmt"
)

// Cause says why a term ended. It is an error, and the cause of a term's context wraps one:
//
//	errors.Is(context.Cause(ctx), election.Deposed)
//
// A LeadFunc may also return an error that wraps StepDown or Fenced: the term then ends for that cause.
type Cause string

const (
	// Deposed: the Lease shows another holder, another epoch or another uid, or it is gone.
	Deposed Cause = "deposed"
	// RenewDeadline: the lease could not be renewed in time. Nobody else need hold it yet.
	RenewDeadline Cause = "renew deadline"
	// Fenced: the storage refused a write of this term because a later term has begun.
	Fenced Cause = "fenced"
	// StepDown: the lease was given up by will.
	StepDown Cause = "step down"
	// Shutdown: the context given to Run ended.
	Shutdown Cause = "shutdown"
	// Failed: the LeadFunc returned an error or panicked.
	Failed Cause = "failed"
)

// Error makes a Cause an error.
func (c Cause) Error() string { return string(c) }

// ErrExit, wrapped in what a LeadFunc returns, ends the election: the lease is released and Run returns that error.
var ErrExit = errors.New("exit")

// request is why a term ends that StepDown ended.
type request struct{ reason, to string }

func (r *request) Error() string { return "on request: " + r.reason }

// requested reports whether a step down was asked for by StepDown.
func requested(cause error) bool {
	_, ok := errors.AsType[*request](cause)
	return ok
}

// byItsOwnWork reports whether a term ended because its work failed or gave up by itself.
func byItsOwnWork(cause error) bool {
	c := causeOf(cause)
	return c == Failed || c == StepDown && !requested(cause)
}

// because is cause with the detail that tells one instance from another.
func because(cause Cause, format string, args ...any) error {
	return fmt.Errorf("%w: %w", cause, fmt.Errorf(format, args...))
}

// causeOf returns the Cause that err wraps; Failed if it wraps none.
func causeOf(err error) Cause {
	if cause, ok := errors.AsType[Cause](err); ok {
		return cause
	}
	return Failed
}
