package reload

import (
	"context"
	"errors"
	"time"
)

// Follower notices that files have changed, and has what is in them used. The zero value of what is not documented as
// optional cannot be used. Look and Refuse are called on one goroutine at a time.
//
// Each look reads the files, whatever the file system tells of them: they may be behind symbolic links that are
// exchanged, as in a mounted Secret.
//
//	in use ──(they differ)──> settling ──(the same at the next look)──> Use ──> in use
//	                                                                     └─(an error)──> refused, until they change
type Follower struct {
	// Read returns what is in the files, or what tells it from anything else.
	Read func() (string, error)
	// Use uses what Read has returned. An error says why it cannot. It is not called again for the same, unless the
	// error is an Again.
	Use func(ctx context.Context, content string) error
	// InUse is what is in use at the start.
	InUse string
	// AtOnce has changes used at the look that finds them. Otherwise they must have stayed the same until the next
	// one: files are emptied first and filled then, and copied one after the other.
	AtOnce bool
	// Accepted, which is optional, is called when the files have come into use, and when they are again what is in
	// use.
	Accepted func(ctx context.Context, content string)
	// Refused is called when the files cannot be used, and what was read before stays in use. It is news if the
	// files or the error are not the same as the last time.
	Refused func(ctx context.Context, err error, news bool)

	latest  state    // what the last look found
	refusal *refusal // nil: what is in the files is in use
}

// state is what a look finds.
type state struct{ content, fault string }

// refusal is why something is not used.
type refusal struct {
	of   state
	text string
	// until is when to try the same again. Zero: not before it changes.
	until time.Time
}

// Again is an error after which the same files are tried again.
type Again struct {
	error
	// After is how long after the look in which they were refused.
	After time.Duration
}

// Unwrap returns the error itself.
func (a Again) Unwrap() error { return a.error }

// TryAgain returns an error after which the same files are tried again after a while.
func TryAgain(err error, after time.Duration) error { return Again{err, after} }

// Look looks at the files once.
func (f *Follower) Look(ctx context.Context, now time.Time) {
	content, err := f.Read()
	found := state{content: content}
	if err != nil {
		found = state{fault: err.Error()}
	}
	settled := f.AtOnce || found == f.latest
	f.latest = found
	if !settled || f.refuses(found, now) {
		return
	}
	changed := err == nil && content != f.InUse
	if changed {
		err = f.Use(ctx, content)
	}
	if err != nil {
		until := time.Time{}
		if again := (Again{}); errors.As(err, &again) {
			until = now.Add(again.After)
		}
		f.refuse(ctx, err, refusal{found, err.Error(), until})
		return
	}
	if (changed || f.refusal != nil) && f.Accepted != nil {
		f.Accepted(ctx, content)
	}
	f.InUse, f.refusal = content, nil
}

// refuses reports whether the same has been refused already, and it is not time to try again.
func (f *Follower) refuses(found state, now time.Time) bool {
	r := f.refusal
	return r != nil && found == r.of && (r.until.IsZero() || now.Before(r.until))
}

// Refuse says that what is in the files cannot be used any more as it was, until a look finds otherwise.
func (f *Follower) Refuse(ctx context.Context, err error) {
	f.refuse(ctx, err, refusal{of: state{fault: "refused by the caller"}, text: err.Error()})
}

func (f *Follower) refuse(ctx context.Context, err error, r refusal) {
	if ctx.Err() != nil {
		return // it may have failed for that
	}
	news := f.refusal == nil || f.refusal.of != r.of || f.refusal.text != r.text
	f.refusal = &r
	f.Refused(ctx, err, news)
}

// Each calls look at intervals, until ctx ends.
func Each(ctx context.Context, interval time.Duration, look func(ctx context.Context, now time.Time)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			look(ctx, now)
		}
	}
}
