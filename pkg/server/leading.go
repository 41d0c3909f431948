package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
)

// lead is one term: it returns when all that the term started has ended.
func (r *run) lead(ctx context.Context, term election.Term) error {
	predecessors := term.FailedParts()
	if term.Token().IsZero() { // without a lease the replica is its own predecessor
		predecessors = r.poison.all()
	}
	tolerated := r.poison.tolerated(predecessors)
	if len(tolerated) > 0 {
		klog.FromContext(ctx).Error(nil, "Leading on without controllers that this replica could not run before, nor others in its place: they are tried again and again", "controllers", tolerated)
		r.recorder.record(controllerFailed, true, fmt.Sprintf("leads on without controllers %q, which it could not run before, nor others in its place, and tries them again", tolerated))
	}
	defer r.offer(ctx, tolerated)()
	var ended atomic.Pointer[time.Time] // the term, not what may hang in it
	defer context.AfterFunc(ctx, func() {
		now := time.Now()
		ended.Store(&now)
	})()
	began := time.Now()
	timeline, workCtx, measured := newTimeline(ctx, r.cfg.Election.Name, term.Takeover())
	defer measured()
	cfg := r.supervision(controllers.LeaderOnly, func(e supervisor.Event) {
		switch e.Type {
		case supervisor.ControllerRecovered:
			r.poison.worked(e.Controller)
		case supervisor.TermFailed:
			if time.Since(began) >= supervisor.DefaultRestartWindow {
				predecessors = nil // what they failed at is long ago
			}
			election.Fail(ctx, ofTerm(e.Err, predecessors))
		}
	})
	cfg.Tolerated = tolerated
	cfg.Probe = r.probe
	set := r.cfg.Registry.Scoped(controllers.LeaderOnly, controllers.Electing)
	if r.electsItself() {
		set = r.cfg.Registry.Scoped(controllers.LeaderOnly)
	}
	err := r.control(workCtx, set, controllers.LeaderOnly, cfg, term.Token(), r.tokens.leader, timeline.writes(ctx))

	failed := []string{}
	if failure, ok := errors.AsType[*supervisor.ControllerError](err); ok {
		failed = failure.FailedParts()
		r.poison.steppedDown(failed)
	}
	lasted := time.Since(began)
	if at := ended.Load(); at != nil {
		lasted = at.Sub(began)
	}
	if lasted >= supervisor.DefaultRestartWindow {
		r.poison.forgetAllBut(slices.Concat(failed, tolerated))
	}
	return ofTerm(err, predecessors)
}

// ofTerm is a term's error in the election's words. It names also what the terms before it failed at, one right after the
// other: replicas that fail at different controllers would otherwise step down in turn, for ever.
func ofTerm(err error, predecessors []string) error {
	if err == nil {
		return nil
	}
	t := &termError{err: causeOf(err), parts: slices.Clone(predecessors)}
	if failure, ok := errors.AsType[*supervisor.ControllerError](err); ok {
		t.parts = append(t.parts, failure.FailedParts()...)
	}
	slices.Sort(t.parts)
	t.parts = slices.Compact(t.parts)
	return t
}

type termError struct {
	err   error
	parts []string
}

func (t *termError) Error() string { return t.err.Error() }

func (t *termError) Unwrap() error { return t.err }

// FailedParts are for the next leader.
func (t *termError) FailedParts() []string { return t.parts }

// defaultOffer is how long a leader leads on although controllers fail, before it offers the lease to others: one of them
// may have come since, and be whole.
const defaultOffer = 10 * time.Minute

// offer ends the term of ctx after that time, if a controller that was tolerated still is. The returned function must be
// called at the end of the term.
func (r *run) offer(ctx context.Context, tolerated []string) (stop func()) {
	if len(tolerated) == 0 {
		return func() {}
	}
	after := r.cfg.offerAfter
	if after == 0 {
		after = defaultOffer
	}
	over := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(over)
		if still := r.poison.tolerated(tolerated); len(still) > 0 {
			election.Fail(ctx, &offered{still})
		}
	})
	return func() {
		if !timer.Stop() {
			<-over
		}
	}
}

// offered is why a leader steps down that leads on although controllers fail.
type offered struct{ failing []string }

func (o *offered) Error() string {
	return fmt.Sprintf("controllers %q still fail on this replica: another may try", o.failing)
}

// Unwrap makes it a step down.
func (o *offered) Unwrap() error { return election.StepDown }

// FailedParts tells the next leader: if it cannot run them either, it leads on.
func (o *offered) FailedParts() []string { return o.failing }

// causeOf says in the election's words why a term ends.
func causeOf(err error) error {
	switch {
	case errors.Is(err, controllers.ErrExit):
		return fmt.Errorf("%w: %w", election.ErrExit, err)
	case errors.Is(err, controllers.ErrStepDown):
		return fmt.Errorf("%w: %w", election.StepDown, err)
	default:
		return err
	}
}

// supervision returns how the controllers of a scope are supervised. Each event goes on to next.
func (r *run) supervision(scope controllers.Scope, next func(supervisor.Event)) supervisor.Config {
	return supervisor.Config{
		DrainTimeout:   r.cfg.Election.EffectiveDrainTimeout(),
		Policies:       r.cfg.Policies,
		StoreReachable: r.etcd.answers.Load,
		OnEvent: func(e supervisor.Event) {
			switch e.Type {
			case supervisor.ControllerFailed:
				r.recorder.record(controllerFailed, true, fmt.Sprintf("cannot run controller %q: %v (%s)", e.Controller, e.Err, e.Effect))
			case supervisor.ControllerLate:
				r.late.add(scope, e.Controller)
			case supervisor.ProcessFailed: // at once: another controller may hang, so that the term cannot end
				r.fail(e.Err)
			}
			next(e)
		},
	}
}

// control runs controllers, with clients of their own. Those of them that are late are told by scope.
func (r *run) control(ctx context.Context, set []controllers.Descriptor, scope controllers.Scope, cfg supervisor.Config, token fence.Token, user string, through ...wrapTransport) error {
	deps, closeClients, err := r.deps(token, user, func(req *http.Request) {
		election.Fail(ctx, fmt.Errorf("%w: %s %s was refused", election.Fenced, req.Method, req.URL.Path))
	}, through...)
	if err != nil {
		return err
	}
	defer closeClients()
	defer r.late.clear(scope)
	return supervisor.Run(ctx, set, deps, cfg)
}

// runEveryReplica runs the controllers of every replica for as long as the process serves. Where a term would end they
// all begin anew, after a pause.
func (r *run) runEveryReplica(set []controllers.Descriptor) error {
	if !waitFor(r.processCtx, map[string]<-chan struct{}{"the API server": r.started, "the shard's record": r.shardKnown}) {
		return nil
	}
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 7, Cap: time.Minute}
	pause := fresh
	for {
		began := time.Now()
		err := r.control(r.processCtx, set, controllers.EveryReplica, r.supervision(controllers.EveryReplica, func(supervisor.Event) {}), fence.Token{}, r.tokens.replica)
		switch {
		case errors.Is(err, controllers.ErrExit):
			return err
		case r.processCtx.Err() != nil:
			return nil //nolint:nilerr // whatever it says, it was asked to end
		}
		if time.Since(began) >= supervisor.DefaultRestartWindow {
			pause = fresh
		}
		d := pause.Step()
		klog.FromContext(r.processCtx).Error(err, "The controllers of every replica ended, starting them anew", "controllers", len(set), "pause", d)
		select {
		case <-r.processCtx.Done():
			return nil
		case <-time.After(d):
		}
	}
}
