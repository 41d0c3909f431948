package join

import (
	"context"
	"errors"

	"github.com/regent-project/regent/pkg/election"
)

// Run calls work in a new scope, and ends the scope when work has returned. It returns what work has returned, when
// nothing of the scope is left. A panic of work becomes one of Run.
func Run(ctx context.Context, o Options, work func(ctx context.Context) error) error {
	err, p := run(ctx, o, work, func(error) {})
	if p != nil {
		panic(p)
	}
	return err
}

// run tells with which error work has returned, before it ends the scope.
//
//nolint:revive,staticcheck // the error comes first, because it is what is usually there
func run(ctx context.Context, o Options, work func(ctx context.Context) error, returned func(error)) (err error, p *Panic) {
	s := New(ctx, o)
	if p = s.do(func(ctx context.Context) { err = work(ctx) }); p != nil {
		returned(p)
	} else {
		returned(err)
	}
	if undoing := s.end(); p == nil {
		p = undoing
	}
	return err, p
}

// Lead returns a function for an Elector that calls lead in a new scope for each term. If lead returns or panics while
// others of its goroutines go on, the term ends at once, and the function returns when they have ended. A panic becomes
// an error, a *Panic.
func Lead(o Options, lead election.LeadFunc) election.LeadFunc {
	return func(ctx context.Context, term election.Term) error {
		err, p := run(ctx, o,
			func(ctx context.Context) error { return lead(ctx, term) },
			func(err error) { election.Fail(ctx, err) })
		if p != nil && err != nil {
			return errors.Join(p, err)
		}
		if p != nil {
			return p // itself: it was told already why the term ends
		}
		return err
	}
}

// Starting returns a function that calls start, and returns when ctx ends. It is for functions that start workers and
// return. If start returns an error, the function returns it at once. It does not notice if the workers end by
// themselves.
func Starting(start func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := start(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}

// Controller is what a supervisor runs: its Run calls the function in a new scope. So the supervisor may restart it,
// and governs code that does not join its goroutines like code that does.
type Controller func(ctx context.Context) error

// Run is Run of this package.
func (c Controller) Run(ctx context.Context) error { return Run(ctx, Options{}, c) }
