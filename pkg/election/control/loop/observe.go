package loop

import (
	"context"

	"github.com/regent-project/regent/pkg/election/control"
)

// observed returns a function that calls bounded and, if ctx has an observer, tells it. failures returns how often the
// key's reconcile has failed in succession.
func (l *Loop[K]) observed(ctx context.Context, failures func(K) int) func(context.Context, K) error {
	observe := control.ObserverOf(ctx)
	if observe == nil {
		return l.bounded
	}
	return func(ctx context.Context, k K) (err error) {
		ctx, done := observe(ctx, l.describe(k, failures(k)))
		var failure error
		defer func() { done(failure) }()
		if err = l.bounded(ctx, k); ctx.Err() == nil {
			failure = err
		}
		return err
	}
}

// describe says what is reconciled, and why.
func (l *Loop[K]) describe(k K, failures int) control.Reconcile {
	cause := control.Change
	switch {
	case failures > 0:
		cause = control.Retry
	case l.lanes.of(k) == swept:
		cause = control.Swept
	}
	return control.Reconcile{Controller: l.name, Key: k, Cause: cause, Attempt: failures + 1}
}
