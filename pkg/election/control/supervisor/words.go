package supervisor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
)

// ForElection returns what Run has returned, or the Err of a TermFailed, in the words of package election, for programs
// that call Run in a LeadFunc of their own. Leader does it by itself.
func ForElection(err error) error {
	switch {
	case errors.Is(err, control.ErrExit):
		return fmt.Errorf("%w: %w", election.ErrExit, err)
	case errors.Is(err, control.ErrStepDown):
		return fmt.Errorf("%w: %w", election.StepDown, err)
	default:
		return err
	}
}

// ofTerm returns the error of a term in the form that package election understands. The error names the controllers for
// which this term ended, and those for which the terms right before it ended. Otherwise replicas that fail at different
// controllers would step down in turn, for ever.
func ofTerm(err error, predecessors []string) error {
	if err == nil {
		return nil
	}
	t := &termError{err: ForElection(err), failed: slices.Clone(predecessors)}
	if failure, ok := errors.AsType[*ControllerError](err); ok {
		t.failed = append(t.failed, failure.FailedParts()...)
	}
	slices.Sort(t.failed)
	t.failed = slices.Compact(t.failed)
	return t
}

type termError struct {
	err    error
	failed []string
}

func (t *termError) Error() string { return t.err.Error() }

func (t *termError) Unwrap() error { return t.err }

// FailedParts is read by package election, which passes the names on to the next leader.
func (t *termError) FailedParts() []string { return t.failed }

// offered is the reason why a leader that tolerates failing controllers steps down after Config.OfferAfter.
type offered struct{ failing []string }

func (o *offered) Error() string {
	return fmt.Sprintf("controllers %q still fail on this replica: another may try", o.failing)
}

// Unwrap tells package election that this is a step down, not a failure.
func (o *offered) Unwrap() error { return election.StepDown }

// FailedParts is read by package election, which passes the names on to the next leader. If that one cannot run these
// controllers either, it tolerates them too.
func (o *offered) FailedParts() []string { return o.failing }
