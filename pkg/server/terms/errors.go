package terms

import (
	"errors"
	"fmt"
	"slices"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
)

// ofTerm returns a term's error as the election understands it. It names the controllers for which this term ended, and those
// for which the terms right before it ended: replicas that fail at different controllers would otherwise step down in turn,
// for ever.
func ofTerm(err error, predecessors []string) error {
	if err == nil {
		return nil
	}
	t := &termError{err: inWordsOfElection(err), failed: slices.Clone(predecessors)}
	if failure, ok := errors.AsType[*supervisor.ControllerError](err); ok {
		t.failed = append(t.failed, failure.FailedParts()...)
	}
	slices.Sort(t.failed)
	t.failed = slices.Compact(t.failed)
	return t
}

// inWordsOfElection turns what a controller asks for into the election's cause for it.
func inWordsOfElection(err error) error {
	switch {
	case errors.Is(err, controllers.ErrExit):
		return fmt.Errorf("%w: %w", election.ErrExit, err)
	case errors.Is(err, controllers.ErrStepDown):
		return fmt.Errorf("%w: %w", election.StepDown, err)
	default:
		return err
	}
}

type termError struct {
	err    error
	failed []string
}

func (t *termError) Error() string { return t.err.Error() }

func (t *termError) Unwrap() error { return t.err }

// FailedParts is for the next leader.
func (t *termError) FailedParts() []string { return t.failed }

// offered is why a leader steps down that has led on although controllers fail.
type offered struct{ failing []string }

func (o *offered) Error() string {
	return fmt.Sprintf("controllers %q still fail on this replica: another may try", o.failing)
}

// Unwrap makes it a step down.
func (o *offered) Unwrap() error { return election.StepDown }

// FailedParts is for the next leader: if it cannot run them either, it leads on.
func (o *offered) FailedParts() []string { return o.failing }
