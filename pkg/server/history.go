package server

import (
	"context"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/pkg/server/terms"
)

// book returns where the shard's terms are remembered: beside the Lease.
func (r *run) book() history.Book { return history.Book{Namespace: r.cfg.Election.Namespace} }

// remember returns what writes the record of a term of this replica.
func (r *run) remember(e *elections) terms.Remember {
	return func(ctx context.Context, clients controllers.Clients, term election.Term, phases map[string]float64) error {
		return r.book().Add(ctx, clients.Kube, history.NewEntry(term, r.name, e.leader.Status().Past, phases))
	}
}
