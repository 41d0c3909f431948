package server

import (
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/server/terms"
)

// newTerms returns the runner of the controllers in the one registry.
func (r *run) newTerms(store *store, caches *caches, elections *elections) (*terms.Runner, error) {
	p := r.cfg.Policies
	if p.Default != "" || len(p.Controllers) > 0 {
		klog.FromContext(r.ctx).Info("Controllers have failure policies", "default", p.Of(""), "controllers", p.Controllers)
	}
	runner, err := terms.New(terms.Config{
		Lease:    r.cfg.Election.Name,
		Registry: r.cfg.Registry,
		Supervision: supervisor.Config{
			DrainTimeout: r.cfg.Election.EffectiveDrainTimeout(), Policies: p, StoreReachable: store.etcd.answers.Load,
		},
		Deps: controllers.Deps{
			Shard: r.cfg.Shard, Replica: r.name, BaseURL: r.cfg.BaseURL, Informers: caches.informers, Resources: caches.resources,
			Holds: caches.live.reader.Holds,
		},
		API:         &r.api,
		LeaderToken: r.tokens.leader, ReplicaToken: r.tokens.replica,
		Warn:       func(message string) { elections.leaderRecorder.record(controllerFailed, true, message) },
		Exit:       r.fail,
		OfferAfter: r.cfg.offerAfter,
		Transport:  r.cfg.termTransport,
	})
	if err == nil {
		r.terms.Store(runner)
	}
	return runner, err
}
