package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
)

// DefaultOfferAfter is for a Config without OfferAfter.
const DefaultOfferAfter = 10 * time.Minute

// Lead returns the function of an elector that runs these controllers in each term. Their constructors get the term.
//
//	err := elector.Run(ctx, supervisor.Lead(sweeper, binder))
//
// It panics if the descriptors are faulty, as control.NewRegistry says, or NewLeader fails. A Leader does the same for
// constructors that get something else, with policies, metrics and events.
func Lead(set ...control.Descriptor[election.Term]) election.LeadFunc {
	registry, err := control.NewRegistry(set...)
	if err != nil {
		panic(err)
	}
	leader, err := NewLeader(Config{}, registry)
	if err != nil {
		panic(err)
	}
	return func(ctx context.Context, term election.Term) error { return leader.Lead(ctx, term, term) }
}

// Leader runs controllers in the terms of an elector; it does not elect, as a leader.Leader does. It ends a term in the
// words of package election, and remembers for which controllers this replica has stepped down: if its predecessors
// have stepped down for the same ones, no replica can run them, and it leads on without them (Config.Tolerated),
// instead of stepping down in turn for ever.
type Leader[D any] struct {
	cfg    Config
	set    []control.Descriptor[D]
	memory memory
	shows  []string // the names of whose series it has a share until Close
	closed sync.Once
}

// NewLeader returns a Leader for the controllers of some scopes of a registry; none: LeaderOnly. It sets the Config's
// Tolerated itself. It fails if Config.Policies are not valid for the registry (control.Policies.Validate).
func NewLeader[D any](cfg Config, r *control.Registry[D], scopes ...control.Scope) (*Leader[D], error) {
	if len(scopes) == 0 {
		scopes = []control.Scope{control.LeaderOnly}
	}
	if cfg.OfferAfter == 0 {
		cfg.OfferAfter = DefaultOfferAfter
	}
	if err := cfg.Policies.Validate(r.Names()); err != nil {
		return nil, fmt.Errorf("supervisor: Config.Policies: %w", err)
	}
	l := &Leader[D]{cfg: cfg, set: r.Scoped(scopes...)}
	for _, d := range l.set {
		l.shows = append(l.shows, d.Name)
	}
	show(l.shows)
	return l, nil
}

// Close removes the series of the controllers that no other Leader of this process has. It is for programs whose
// controllers come and go, when Lead has returned for the last time. The series of a work queue belong to client-go,
// which keeps them.
func (l *Leader[D]) Close() { l.closed.Do(func() { hide(l.shows) }) }

// Lead runs the controllers for a term, with deps for their constructors. It is to be called by a LeadFunc, with its
// ctx and term. What it returns is the LeadFunc's to return. All controllers have been joined then, so that clients in
// deps can be closed.
func (l *Leader[D]) Lead(ctx context.Context, term election.Term, deps D) error {
	predecessors := term.FailedParts()
	if term.Token().IsZero() { // without a lease the replica is its own predecessor
		predecessors = l.memory.all()
	}
	cfg := l.cfg
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = cmp.Or(term.DrainTimeout(), election.DefaultConfig().EffectiveDrainTimeout())
	}
	cfg.Tolerated = l.tolerate(ctx, predecessors)
	defer l.offer(ctx, cfg.Tolerated)()
	clock, stop := newTermClock(ctx)
	defer stop()
	cfg.OnEvent = func(e Event) {
		if l.cfg.OnEvent != nil {
			l.cfg.OnEvent(e)
		}
		switch e.Type {
		case ControllerRecovered:
			l.memory.worked(e.Controller)
		case TermFailed:
			if time.Since(clock.began) >= DefaultRestartWindow {
				predecessors = nil // this term has lasted: the failures of earlier terms are long ago
			}
			election.Fail(ctx, ofTerm(e.Err, predecessors))
		}
	}
	err := Run(ctx, l.set, deps, cfg)
	l.remember(err, cfg.Tolerated, clock.duration())
	return ofTerm(err, predecessors)
}

// tolerate returns the controllers whose failure does not end this term, and tells operators about them.
func (l *Leader[D]) tolerate(ctx context.Context, predecessors []string) []string {
	tolerated := l.memory.tolerated(predecessors)
	if len(tolerated) > 0 {
		klog.FromContext(ctx).Error(nil, "Leading on although these controllers fail: the terms before have ended for them, too. They are tried again and again", "controllers", tolerated)
		if l.cfg.OnEvent != nil {
			l.cfg.OnEvent(Event{Type: TermTolerates, Err: fmt.Errorf("leads on without controllers %q, which neither it nor its predecessors could run, and tries them again", tolerated)})
		}
	}
	return tolerated
}

// remember records, for later terms, the controllers at which a term failed. err is the error of the term.
func (l *Leader[D]) remember(err error, tolerated []string, lasted time.Duration) {
	failed := []string{}
	if failure, ok := errors.AsType[*ControllerError](err); ok {
		failed = failure.FailedParts()
		l.memory.steppedDown(failed)
	}
	if lasted >= DefaultRestartWindow {
		l.memory.forgetAllBut(slices.Concat(failed, tolerated))
	}
}

// offer ends the term of ctx after Config.OfferAfter if a tolerated controller still fails: another replica may be able
// to run it by then. Call stop at the end of the term.
func (l *Leader[D]) offer(ctx context.Context, tolerated []string) (stop func()) {
	if len(tolerated) == 0 {
		return func() {}
	}
	over := make(chan struct{})
	timer := time.AfterFunc(l.cfg.OfferAfter, func() {
		defer close(over)
		if still := l.memory.tolerated(tolerated); len(still) > 0 {
			election.Fail(ctx, &offered{still})
		}
	})
	return func() {
		if !timer.Stop() {
			<-over
		}
	}
}

// termClock measures how long a term lasts: from its beginning to the end of its context. The time that its controllers
// take to stop does not count.
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

func (c *termClock) duration() time.Duration {
	if at := c.ended.Load(); at != nil {
		return at.Sub(c.began)
	}
	return time.Since(c.began)
}
