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

// errRequested marks a step down that StepDown asked for.
var errRequested = errors.New("on request")

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
