package terms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
)

// Leader returns the function that package election calls for each term. It runs the controllers of the given scopes, and
// returns when everything that the term started has ended.
func (r *Runner) Leader(scopes ...controllers.Scope) election.LeadFunc {
	descriptors := r.cfg.Registry.Scoped(scopes...)
	return func(ctx context.Context, term election.Term) error { return r.lead(ctx, descriptors, term) }
}

func (r *Runner) lead(ctx context.Context, descriptors []controllers.Descriptor, term election.Term) error {
	predecessors := term.FailedParts()
	if term.Token().IsZero() { // without a lease the replica is its own predecessor
		predecessors = r.memory.all()
	}
	tolerated := r.tolerate(ctx, predecessors)
	defer r.offer(ctx, tolerated)()
	clock, stop := newTermClock(ctx)
	defer stop()
	timeline, workCtx, measured := newTimeline(ctx, r.cfg.Lease, term.Epoch(), term.Takeover())
	defer measured()

	err := r.run(workCtx, set{
		scope: controllers.LeaderOnly, descriptors: descriptors, user: r.cfg.LeaderToken, token: term.Token(),
		measure: timeline.writes(ctx), tolerated: tolerated,
		begun: func(clients controllers.Clients) func() { return r.record(ctx, timeline, term, clients) },
		onEvent: func(e supervisor.Event) {
			switch e.Type {
			case supervisor.ControllerRecovered:
				r.memory.worked(e.Controller)
			case supervisor.TermFailed:
				if time.Since(clock.began) >= supervisor.DefaultRestartWindow {
					predecessors = nil // this term has lasted: the failures of earlier terms are long ago
				}
				election.Fail(ctx, ofTerm(e.Err, predecessors))
			}
		},
	})
	r.remember(err, tolerated, clock.lasted())
	return ofTerm(err, predecessors)
}

// tolerate returns the controllers whose failure does not end this term, and tells operators about them.
func (r *Runner) tolerate(ctx context.Context, predecessors []string) []string {
	tolerated := r.memory.tolerated(predecessors)
	if len(tolerated) > 0 {
		klog.FromContext(ctx).Error(nil, "Leading on without controllers that neither this replica nor its predecessors could run: they are tried again and again", "controllers", tolerated)
		r.cfg.Warn(fmt.Sprintf("leads on without controllers %q, which neither it nor its predecessors could run, and tries them again", tolerated))
	}
	return tolerated
}

// remember records, for later terms, the controllers at which a term failed. err is the error of the term.
func (r *Runner) remember(err error, tolerated []string, lasted time.Duration) {
	failed := []string{}
	if failure, ok := errors.AsType[*supervisor.ControllerError](err); ok {
		failed = failure.FailedParts()
		r.memory.steppedDown(failed)
	}
	if lasted >= supervisor.DefaultRestartWindow {
		r.memory.forgetAllBut(slices.Concat(failed, tolerated))
	}
}

// offer ends the term of ctx after Config.OfferAfter if a tolerated controller still fails: another replica may be able to run
// it by then. Call stop at the end of the term.
func (r *Runner) offer(ctx context.Context, tolerated []string) (stop func()) {
	if len(tolerated) == 0 {
		return func() {}
	}
	over := make(chan struct{})
	timer := time.AfterFunc(r.cfg.OfferAfter, func() {
		defer close(over)
		if still := r.memory.tolerated(tolerated); len(still) > 0 {
			election.Fail(ctx, &offered{still})
		}
	})
	return func() {
		if !timer.Stop() {
			<-over
		}
	}
}

// termClock measures how long a term lasts: from its beginning to the end of its context. The time that its controllers take to
// stop does not count.
type termClock struct {
	began time.Time
	ended atomic.Pointer[time.Time]
}

// newTermClock returns a clock for ctx's term. Call the returned function when the term's work has ended.
func newTermClock(ctx context.Context) (*termClock, func() bool) {
	c := &termClock{began: time.Now()}
	return c, context.AfterFunc(ctx, func() {
		now := time.Now()
		c.ended.Store(&now)
	})
}

func (c *termClock) lasted() time.Duration {
	if at := c.ended.Load(); at != nil {
		return at.Sub(c.began)
	}
	return time.Since(c.began)
}
