package detect

import (
	"context"
	"slices"

	"github.com/regent-project/regent/pkg/election"
)

// For returns an election.Detector for another Lease of the same process. It shares the probe, by which the leaders of both are
// followed. Of those leaders' terms nothing is said on it: a leader of that Lease that cannot renew is not asked to make way.
func (d *Detector) For(lease string) election.Detector {
	show(lease)
	return &alias{of: d, lease: lease}
}

type alias struct {
	of    *Detector
	lease string
}

// Contact is how to reach the process.
func (a *alias) Contact() election.Contact { return a.of.Contact() }

// Follow is the Detector's, with metrics of its own.
func (a *alias) Follow(ctx context.Context, leader election.Contact, f election.Follower) {
	cfg := a.of.cfg
	cfg.Name = a.lease
	own := &Detector{cfg: cfg, handshake: a.of.handshake, secret: a.of.secret}
	own.Follow(ctx, leader, election.Follower{
		Is: election.Standby{Led: f.Is.Led}, // without a mode: see Followers
		Report: func(news election.News) {
			news.Said = election.Statement{} // of another term
			f.Report(news)
		},
		Writes: func(context.Context, string) bool { return false },
	})
}

// Say does nothing.
func (a *alias) Say(election.Statement) {}

// Confirmations are none.
func (a *alias) Confirmations() <-chan election.Confirmation { return nil }

// Followers are those that follow by an alias: they say what they led last, and no mode in which they could lead next.
func (a *alias) Followers() []election.Standby {
	return slices.DeleteFunc(a.of.Followers(), func(s election.Standby) bool { return s.Mode != "" })
}

var _ election.Detector = (*alias)(nil)
