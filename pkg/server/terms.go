package server

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server/endpoints"
	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/pkg/server/terms"
)

// newTerms returns the runner of the controllers in the one registry. A controller that demands it calls exit.
func (s *Server) newTerms(ctx context.Context, store *store, caches *caches, elections *elections, exit func(error)) (*terms.Runner, error) {
	p := s.cfg.Policies
	if p.Default != "" || len(p.Controllers) > 0 {
		klog.FromContext(ctx).Info("Controllers have failure policies", "default", p.Of(""), "controllers", p.Controllers)
	}
	var others *controllers.Shards
	if caches.others != nil {
		others = caches.others.Shards()
	}
	return terms.New(terms.Config{
		Lease:    s.cfg.Election.Name,
		Registry: s.cfg.Registry,
		Supervision: supervisor.Config{
			DrainTimeout: s.cfg.Election.EffectiveDrainTimeout(), Policies: p, StoreReachable: store.etcd.DidAnswer,
			OfferAfter: s.cfg.offerAfter,
		},
		Deps: controllers.Deps{
			Shard: s.cfg.Shard, Replica: s.name, BaseURL: s.cfg.BaseURL, Informers: caches.informers, Resources: caches.resources,
			RootCA:  s.rootCA,
			Holding: store.Holding, Moves: s.newMoves(store, caches), LogicalCluster: caches.live.reader.LogicalCluster, Shards: others, ReplicaURL: s.replicaURL(), Capacity: cmp.Or(s.cfg.Capacity, clusters.DefaultCapacity),
		},
		API:         &s.api,
		LeaderToken: s.identity.InProcess.Leader, ReplicaToken: s.identity.InProcess.Replica,
		Warn:      func(message string) { elections.leaderRecorder.record(controllerFailed, true, message) },
		Exit:      exit,
		Transport: s.cfg.termTransport,
		Remember:  s.remember(elections),
	})
}

// replicaURL returns the URL under which other members of the installation reach this replica.
func (s *Server) replicaURL() string {
	return "https://" + net.JoinHostPort(s.cfg.Advertise.String(), strconv.Itoa(s.cfg.Serving.BindPort))
}

// book returns where the shard's terms are remembered: beside the Lease.
func (s *Server) book() history.Book { return history.Book{Namespace: s.cfg.Election.Namespace} }

// remember returns what writes the record of a term of this replica.
func (s *Server) remember(e *elections) terms.Remember {
	writer := history.NewWriter(s.book())
	return func(ctx context.Context, clients controllers.Clients, of ranges.Range, term election.Term, phases map[string]float64) error {
		return writer.Add(ctx, clients.Kube, history.NewEntry(of.Index, term, s.name, endpoints.StatusOf(e.leadership(), of.Index).Past, phases))
	}
}
