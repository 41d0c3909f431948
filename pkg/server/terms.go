package server

import (
	"cmp"
	"net"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/server/terms"
)

// newTerms returns the runner of the controllers in the one registry.
func (r *run) newTerms(store *store, caches *caches, elections *elections) (*terms.Runner, error) {
	p := r.cfg.Policies
	if p.Default != "" || len(p.Controllers) > 0 {
		klog.FromContext(r.ctx).Info("Controllers have failure policies", "default", p.Of(""), "controllers", p.Controllers)
	}
	var others *controllers.Shards
	if caches.others != nil {
		others = caches.others.Shards()
	}
	runner, err := terms.New(terms.Config{
		Lease:    r.cfg.Election.Name,
		Registry: r.cfg.Registry,
		Supervision: supervisor.Config{
			DrainTimeout: r.cfg.Election.EffectiveDrainTimeout(), Policies: p, StoreReachable: store.etcd.DidAnswer,
			OfferAfter: r.cfg.offerAfter,
		},
		Deps: controllers.Deps{
			Shard: r.cfg.Shard, Replica: r.name, BaseURL: r.cfg.BaseURL, Informers: caches.informers, Resources: caches.resources,
			RootCA: r.rootCA,
			Holds:  caches.live.reader.Holds, Shards: others, ReplicaURL: r.replicaURL(), Capacity: cmp.Or(r.cfg.Capacity, clusters.DefaultCapacity),
		},
		API:         &r.api,
		LeaderToken: r.identity.InProcess.Leader, ReplicaToken: r.identity.InProcess.Replica,
		Warn:      func(message string) { elections.leaderRecorder.record(controllerFailed, true, message) },
		Exit:      r.fail,
		Transport: r.cfg.termTransport,
		Remember:  r.remember(elections),
	})
	if err == nil {
		r.terms.Store(runner)
	}
	return runner, err
}

// replicaURL returns the URL under which other members of the installation reach this replica.
func (r *run) replicaURL() string {
	return "https://" + net.JoinHostPort(r.cfg.Advertise.String(), strconv.Itoa(r.cfg.Serving.BindPort))
}
