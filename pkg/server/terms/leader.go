package terms

import (
	"context"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

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
	return r.run(workCtx, set{
		scope: controllers.LeaderOnly, user: r.cfg.LeaderToken, token: term.Token(), measure: timeline.writes(ctx),
		begun: func(clients controllers.Clients) func() { return r.record(ctx, timeline, term, clients) },
		run:   func(ctx context.Context, deps controllers.Deps) error { return leader.Lead(ctx, term, deps) },
	})
}
