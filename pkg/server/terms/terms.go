// Package terms runs a replica's controllers: the leader's in terms, which a replica can lose and win again, and those
// of every replica for as long as the process serves. Package election decides when a term begins and ends. Package
// supervisor decides what happens when a controller fails. This package gives each term its clients, and tells how long
// a takeover took.
package terms

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// Config is what New needs. Remember and Transport may be zero.
type Config struct {
	// Lease is the name of the shard's Lease. Metrics show it.
	Lease string
	// Registry lists the controllers.
	Registry *controllers.Registry
	// Supervision has the drain timeout, the policies, StoreReachable and OfferAfter. The Runner sets its other
	// fields.
	Supervision supervisor.Config
	// Deps are what all controllers get. The Runner sets Token and Clients anew for each term.
	Deps controllers.Deps
	// API is this process's own API server. The controllers of a term are the user of LeaderToken there, those of
	// every replica the user of ReplicaToken.
	API                       *loopback.Server
	LeaderToken, ReplicaToken string
	// Warn tells operators what this replica does about failing controllers. It must not block.
	Warn func(message string)
	// Exit is called as soon as a controller demands the end of the process, because the end of the term may have
	// to wait for another controller that hangs. It must not block.
	Exit func(error)
	// Remember keeps a record of each term of the leader that has a fencing token. Nil: nobody does.
	Remember Remember
	// Transport wraps the requests of terms that have a fencing token. It is for tests.
	Transport transport.WrapperFunc
}

// Runner runs controllers. At any time it runs at most one term of the leader and one of the electing controllers.
type Runner struct {
	cfg    Config
	probes map[controllers.Scope]*supervisor.Probe // of the sets of controllers that run
	late   lateControllers
	term   atomic.Pointer[beginning] // of the leader's term that goes on
}

// beginning is a term of the leader, with what measures how it began.
type beginning struct {
	term     election.Term
	timeline *timeline
}

// New returns a Runner that runs nothing yet. The metrics of the controllers are there from then on.
func New(cfg Config) (*Runner, error) {
	if err := registerTimeline(); err != nil {
		return nil, fmt.Errorf("cannot register the metric of takeovers: %w", err)
	}
	showTakeovers(cfg.Lease)
	supervisor.ShowMetrics(cfg.Registry)
	r := &Runner{cfg: cfg, probes: map[controllers.Scope]*supervisor.Probe{}}
	for _, scope := range controllers.Scopes {
		r.probes[scope] = supervisor.NewProbe()
	}
	return r, nil
}

// Ping returns nil if the supervisor of the leader's controllers answers, or if none runs. It returns an error if ctx
// ends first.
func (r *Runner) Ping(ctx context.Context) error { return r.probes[controllers.LeaderOnly].Ping(ctx) }

// Late names the controllers that still run although their drain timeout has passed.
func (r *Runner) Late() []string { return r.late.names() }

// Elect runs one term of the electing controllers under a Lease of their own. It returns when everything that the term
// started has ended.
func (r *Runner) Elect(ctx context.Context, term election.Term) error {
	err := r.run(ctx, set{
		scope: controllers.Electing, user: r.cfg.LeaderToken, token: term.Token(),
		run: func(ctx context.Context, deps controllers.Deps) error {
			cfg := r.supervision(controllers.Electing)
			take := cfg.OnEvent
			cfg.OnEvent = func(e supervisor.Event) {
				take(e)
				if e.Type == supervisor.TermFailed {
					election.Fail(ctx, supervisor.ForElection(e.Err))
				}
			}
			return supervisor.Run(ctx, r.cfg.Registry.Scoped(controllers.Electing), deps, cfg)
		},
	})
	return supervisor.ForElection(err)
}

// EveryReplica runs the controllers of every replica until ctx ends, or until one of them demands the end of the
// process. A failure that would end a term stops all of them; they start again after a pause.
func (r *Runner) EveryReplica(ctx context.Context) error {
	everywhere := r.cfg.Registry.Scoped(controllers.EveryReplica)
	all := set{
		scope: controllers.EveryReplica, user: r.cfg.ReplicaToken,
		run: func(ctx context.Context, deps controllers.Deps) error {
			return supervisor.Run(ctx, everywhere, deps, r.supervision(controllers.EveryReplica))
		},
	}
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 7, Cap: time.Minute}
	pause := fresh
	for {
		began := time.Now()
		err := r.run(ctx, all)
		switch {
		case errors.Is(err, controllers.ErrExit):
			return err
		case ctx.Err() != nil:
			return nil //nolint:nilerr // whatever it says, it was asked to end
		}
		if time.Since(began) >= supervisor.DefaultRestartWindow {
			pause = fresh
		}
		d := pause.Step()
		klog.FromContext(ctx).Error(err, "The controllers of every replica ended, starting them anew", "controllers", len(everywhere), "pause", d)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d):
		}
	}
}

// Leader returns the function that package election calls for each term. It runs the controllers of the given scopes,
// and returns when everything that the term started has ended.
func (r *Runner) Leader(scopes ...controllers.Scope) election.LeadFunc {
	leader, err := supervisor.NewLeader(r.supervision(controllers.LeaderOnly), r.cfg.Registry, scopes...)
	if err != nil { // not where New has registered the same metrics
		return func(context.Context, election.Term) error { return err }
	}
	return func(ctx context.Context, term election.Term) error { return r.lead(ctx, leader, term) }
}

func (r *Runner) lead(ctx context.Context, leader *supervisor.Leader[controllers.Deps], term election.Term) error {
	timeline, workCtx, measured := newTimeline(ctx, r.cfg.Lease, term.Epoch(), term.Takeover())
	defer measured()
	r.term.Store(&beginning{term, timeline})
	defer r.term.Store(nil)
	return r.run(workCtx, set{
		scope: controllers.LeaderOnly, user: r.cfg.LeaderToken, token: term.Token(), measure: timeline.writes(ctx),
		begun: func(clients controllers.Clients) func() { return r.record(ctx, timeline, term, clients) },
		run:   func(ctx context.Context, deps controllers.Deps) error { return leader.Lead(ctx, term, deps) },
	})
}

// Term returns the leader's term that goes on, and how long the phases of its takeover took in seconds, as far as they
// are over. It reports false if no term goes on.
func (r *Runner) Term() (term election.Term, phases map[string]float64, ok bool) {
	b := r.term.Load()
	if b == nil {
		return term, nil, false
	}
	return b.term, b.timeline.phases(), true
}

// Status is how a controller of the registry is doing on this replica.
type Status struct {
	Scope controllers.Scope
	supervisor.Status
}

// Status returns how all controllers of the registry are doing, in its order. One that has not run yet is stopped. It
// does not block.
func (r *Runner) Status() []Status {
	known := map[string]supervisor.Status{}
	for _, probe := range r.probes {
		for _, s := range probe.Status() {
			known[s.Controller] = s
		}
	}
	all := r.cfg.Registry.Scoped(controllers.Scopes...)
	out := make([]Status, len(all))
	for n, d := range all {
		out[n] = Status{d.Scope, supervisor.Status{Controller: d.Name, State: supervisor.Stopped}}
		if s, ok := known[d.Name]; ok {
			out[n].Status = s
		}
	}
	return out
}
