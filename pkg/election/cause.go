package election

import (
	"errors"
	"fmt"
)

// Cause says why a term ended. A Cause is an error, and the cause of a term's context wraps one:
//
//	errors.Is(context.Cause(ctx), election.Deposed)
//
// If a LeadFunc returns an error that wraps StepDown or Fenced, its term ends with that Cause.
type Cause string

const (
	// Deposed: the Lease shows another holder, epoch or uid, or was deleted.
	Deposed Cause = "deposed"
	// RenewDeadline: the lease could not be renewed in time. Perhaps nobody else holds it yet.
	RenewDeadline Cause = "renew deadline"
	// Fenced: the storage refused a write of this term because a later term has begun.
	Fenced Cause = "fenced"
	// StepDown: the leader gave the lease up by will.
	StepDown Cause = "step down"
	// Shutdown: the context of Run ended.
	Shutdown Cause = "shutdown"
	// Failed: the LeadFunc returned an error or panicked.
	Failed Cause = "failed"
)

// Error implements error.
func (c Cause) Error() string { return string(c) }

// ErrExit ends the election if a LeadFunc returns an error that wraps it. The Elector releases the lease, and Run
// returns that error.
var ErrExit = errors.New("exit")

// request is the error of a term that ends because StepDown was called, or because another replica is preferred.
type request struct{ reason, to string }

func (r *request) Error() string { return "on request: " + r.reason }

// requested reports whether cause is a step down on request.
func requested(cause error) bool {
	_, ok := errors.AsType[*request](cause)
	return ok
}

// byItsOwnWork reports whether a term ended because its work failed, or stepped down by itself.
func byItsOwnWork(cause error) bool {
	c := causeOf(cause)
	return c == Failed || c == StepDown && !requested(cause)
}

// because returns an error that wraps cause, with details.
func because(cause Cause, format string, args ...any) error {
	return fmt.Errorf("%w: %w", cause, fmt.Errorf(format, args...))
}

// causeOf returns the Cause that err wraps, or Failed if it wraps none.
func causeOf(err error) Cause {
	if cause, ok := errors.AsType[Cause](err); ok {
		return cause
	}
	return Failed
}
