// Package terms runs a replica's controllers: the leader's in terms, which a replica can lose and win again, and those
// of every replica for as long as the process serves. Package election decides when a term begins and ends. Package
// supervisor decides what happens when a controller fails. This package gives each term its clients, and tells how long
// a takeover took.
package terms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/ranges"
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

// Runner runs the controllers of all scopes, each set of them with a supervisor of its own: those of every replica,
// those that elect, and the leader's of each range. Any goroutine may call its methods.
type Runner struct {
	cfg  Config
	late lateControllers

	mu      sync.Mutex
	probes  map[part]*supervisor.Probe // of the sets of controllers that run, or have run
	leaders map[ranges.Range]*supervisor.Leader[controllers.Deps]
	terms   map[int]beginning // of the leader's terms that go on, by range
}

// part says which controllers a set has: of a scope, and of the leader's scope for a range. The zero Range stands for
// all.
type part struct {
	scope controllers.Scope
	of    ranges.Range
}

// suffix says of which range it is, for people.
func (p part) suffix() string {
	if p.of.Of <= 1 {
		return ""
	}
	return fmt.Sprintf(" of range %d", p.of.Index)
}

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
	return &Runner{
		cfg: cfg, probes: map[part]*supervisor.Probe{}, leaders: map[ranges.Range]*supervisor.Leader[controllers.Deps]{}, terms: map[int]beginning{},
	}, nil
}

// probe returns that of a set.
func (r *Runner) probe(p part) *supervisor.Probe {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probes[p] == nil {
		r.probes[p] = supervisor.NewProbe()
	}
	return r.probes[p]
}

// Ping returns nil if the supervisors of the leader's controllers answer, or if none runs. It returns an error if ctx
// ends first.
func (r *Runner) Ping(ctx context.Context) error {
	r.mu.Lock()
	probes := maps.Clone(r.probes)
	r.mu.Unlock()
	for p, probe := range probes {
		if p.scope != controllers.LeaderOnly {
			continue
		}
		if err := probe.Ping(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Late names the controllers that still run although their drain timeout has passed.
func (r *Runner) Late() []string { return r.late.names() }

// Elect runs one term of the electing controllers under a Lease of their own. It returns when everything that the term
// started has ended.
func (r *Runner) Elect(ctx context.Context, term election.Term) error {
	err := r.run(ctx, set{
		part: part{scope: controllers.Electing}, user: r.cfg.LeaderToken, token: term.Token(),
		run: func(ctx context.Context, deps controllers.Deps) error {
			cfg := r.supervision(part{scope: controllers.Electing})
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
		part: part{scope: controllers.EveryReplica}, user: r.cfg.ReplicaToken,
		run: func(ctx context.Context, deps controllers.Deps) error {
			return supervisor.Run(ctx, everywhere, deps, r.supervision(part{scope: controllers.EveryReplica}))
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

// Leader returns the function that runs one term of the leader, for an election.Elector: the controllers of the scopes.
// The replica remembers between terms for which controllers it has stepped down.
func (r *Runner) Leader(scopes ...controllers.Scope) election.LeadFunc {
	lead := r.RangeLeader(scopes...)
	return func(ctx context.Context, term election.Term) error { return lead(ctx, ranges.Range{Of: 1}, term) }
}

// RangeLeader returns the function that runs one term of a range's leader, for a ranges.Group, as Leader does: what the
// replica remembers, it does for each range, until there is another number of ranges.
func (r *Runner) RangeLeader(scopes ...controllers.Scope) ranges.LeadFunc {
	return func(ctx context.Context, of ranges.Range, term election.Term) error {
		leader, err := r.leader(of, scopes)
		if err != nil { // not where New has registered the same metrics
			return err
		}
		if of.Of > 1 {
			ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("range", of.Index))
		}
		return r.lead(ctx, leader, of, term)
	}
}

// leader returns what runs the controllers of a range in its terms.
func (r *Runner) leader(of ranges.Range, scopes []controllers.Scope) (*supervisor.Leader[controllers.Deps], error) {
	cfg := r.supervision(part{controllers.LeaderOnly, of})
	r.mu.Lock()
	defer r.mu.Unlock()
	if leader := r.leaders[of]; leader != nil {
		return leader, nil
	}
	for other, leader := range r.leaders { // of another number, whose terms have all ended
		if other.Of != of.Of {
			leader.Close()
			delete(r.leaders, other)
			delete(r.probes, part{controllers.LeaderOnly, other})
		}
	}
	leader, err := supervisor.NewLeader(cfg, r.cfg.Registry, scopes...)
	if err == nil {
		r.leaders[of] = leader
	}
	return leader, err
}

func (r *Runner) lead(ctx context.Context, leader *supervisor.Leader[controllers.Deps], of ranges.Range, term election.Term) error {
	timeline, workCtx, measured := newTimeline(ctx, r.cfg.Lease, term.Epoch(), term.Takeover())
	defer measured()
	r.mu.Lock()
	r.terms[of.Index] = beginning{term, timeline}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.terms, of.Index)
	}()
	return r.run(workCtx, set{
		part: part{controllers.LeaderOnly, of}, user: r.cfg.LeaderToken, token: term.Token(), measure: timeline.writes(ctx),
		begun: func(clients controllers.Clients) func() { return r.record(ctx, timeline, of, term, clients) },
		run:   func(ctx context.Context, deps controllers.Deps) error { return leader.Lead(ctx, term, deps) },
	})
}

// Term returns the term of a range that goes on, and how long the phases of its takeover took, in seconds. It is not ok
// if this replica does not lead the range.
func (r *Runner) Term(index int) (term election.Term, phases map[string]float64, ok bool) {
	r.mu.Lock()
	b, ok := r.terms[index]
	r.mu.Unlock()
	if !ok {
		return term, nil, false
	}
	return b.term, b.timeline.phases(), true
}

// Status is how a controller is doing.
type Status struct {
	Scope controllers.Scope
	supervisor.Status
	// Ranges has how it is doing in each range that this replica leads, or has led, by the range's index, if the
	// shard has several. Status then has the sums, and otherwise what is worst.
	Ranges map[int]supervisor.Status
}

// Status returns how the controllers of all scopes are doing, in the order of the registry.
func (r *Runner) Status() []Status {
	r.mu.Lock()
	probes := maps.Clone(r.probes)
	r.mu.Unlock()
	known := map[string]*Status{}
	for _, p := range slices.SortedFunc(maps.Keys(probes), func(a, b part) int { return cmp.Compare(a.of.Index, b.of.Index) }) {
		for _, s := range probes[p].Status() {
			sum := known[s.Controller]
			if sum == nil {
				sum = &Status{Status: supervisor.Status{Controller: s.Controller, State: supervisor.Stopped}}
				known[s.Controller] = sum
			}
			sum.add(p.of, s)
		}
	}
	all := r.cfg.Registry.Scoped(controllers.Scopes...)
	out := make([]Status, len(all))
	for n, d := range all {
		out[n] = Status{Status: supervisor.Status{Controller: d.Name, State: supervisor.Stopped}}
		if s, ok := known[d.Name]; ok {
			out[n] = *s
		}
		out[n].Scope = d.Scope
	}
	return out
}

// add takes the status of a range. With one range that is the whole.
func (s *Status) add(of ranges.Range, one supervisor.Status) {
	if of.Of <= 1 {
		s.Status = one
		return
	}
	if s.Ranges == nil {
		s.Ranges = map[int]supervisor.Status{}
	}
	s.Ranges[of.Index] = one
	s.Restarts += one.Restarts
	s.Panics += one.Panics
	s.Stalls += one.Stalls
	s.Tolerated = s.Tolerated || one.Tolerated
	s.HeldBy = cmp.Or(s.HeldBy, one.HeldBy)
	if one.Failed.After(s.Failed) {
		s.LastError, s.Failed, s.Effect = one.LastError, one.Failed, one.Effect
	}
	if slices.Index(supervisor.States, one.State) < slices.Index(supervisor.States, s.State) || len(s.Ranges) == 1 {
		s.State, s.Since = one.State, one.Since
	}
	s.Health.Pending += one.Health.Pending
	s.Health.Returned += one.Health.Returned
	s.Health.Sweep.Pending += one.Health.Sweep.Pending
	s.Health.Sweep.Returned += one.Health.Sweep.Returned
	s.Health.Sweep.Running = s.Health.Sweep.Running || one.Health.Sweep.Running
}
