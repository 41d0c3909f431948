// Package terms runs a replica's controllers: the leader's in terms, which a replica can lose and win again, and those of every
// replica for as long as the process serves. Package election decides when a term begins and ends. Package supervisor decides
// what happens when a controller fails. This package gives each term its clients, and remembers at which controllers earlier
// terms failed.
package terms

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// Config is what New needs. OfferAfter, Remember and Transport may be zero.
type Config struct {
	// Lease is the name of the shard's Lease. Metrics show it.
	Lease string
	// Registry lists the controllers.
	Registry *controllers.Registry
	// Supervision has the drain timeout, the policies and StoreReachable. The Runner sets its other fields.
	Supervision supervisor.Config
	// Deps are what all controllers get. The Runner sets Token and Clients anew for each term.
	Deps controllers.Deps
	// API is this process's own API server. The controllers of a term are the user of LeaderToken there, those of every replica
	// the user of ReplicaToken.
	API                       *loopback.Server
	LeaderToken, ReplicaToken string
	// Warn tells operators what this replica does about failing controllers. It must not block.
	Warn func(message string)
	// Exit is called as soon as a controller demands the end of the process, because the end of the term may have to wait for
	// another controller that hangs. It must not block.
	Exit func(error)
	// OfferAfter is how long a leader tolerates failing controllers before it offers the lease to other replicas. 0 stands for
	// 10 minutes.
	OfferAfter time.Duration
	// Remember keeps a record of each term of the leader that has a fencing token. Nil: nobody does.
	Remember Remember
	// Transport wraps the requests of terms that have a fencing token. It is for tests.
	Transport transport.WrapperFunc
}

// Runner runs controllers. At any time it runs at most one term of the leader and one of the electing controllers.
type Runner struct {
	cfg    Config
	probes map[controllers.Scope]*supervisor.Probe // of the sets of controllers that run
	memory memory
	late   lateControllers
}

// New returns a Runner that runs nothing yet. It registers the metrics of the controllers.
func New(cfg Config) (*Runner, error) {
	if cfg.OfferAfter == 0 {
		cfg.OfferAfter = 10 * time.Minute
	}
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

// Ping returns nil if the supervisor of the leader's controllers answers, or if none runs. It returns an error if ctx ends
// first.
func (r *Runner) Ping(ctx context.Context) error { return r.probes[controllers.LeaderOnly].Ping(ctx) }

// Late names the controllers that still run although their drain timeout has passed.
func (r *Runner) Late() []string { return r.late.names() }

// Elect runs one term of the electing controllers under a Lease of their own. It returns when everything that the term started
// has ended.
func (r *Runner) Elect(ctx context.Context, term election.Term) error {
	err := r.run(ctx, set{
		scope: controllers.Electing, descriptors: r.cfg.Registry.Scoped(controllers.Electing), user: r.cfg.LeaderToken, token: term.Token(),
		onEvent: func(e supervisor.Event) {
			if e.Type == supervisor.TermFailed {
				election.Fail(ctx, ofTerm(e.Err, nil))
			}
		},
	})
	return ofTerm(err, nil)
}

// EveryReplica runs the controllers of every replica until ctx ends, or until one of them demands the end of the process. A
// failure that would end a term stops all of them; they start again after a pause.
func (r *Runner) EveryReplica(ctx context.Context) error {
	all := set{
		scope: controllers.EveryReplica, descriptors: r.cfg.Registry.Scoped(controllers.EveryReplica),
		user: r.cfg.ReplicaToken,
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
		klog.FromContext(ctx).Error(err, "The controllers of every replica ended, starting them anew", "controllers", len(all.descriptors), "pause", d)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d):
		}
	}
}
