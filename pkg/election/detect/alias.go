package detect

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/regent-project/regent/pkg/election"
)

// For returns an election.Detector for another Lease of the same process. It uses the same probe: standbys of either
// Lease follow this process there. But it carries no Statements about terms under that other Lease. A leader of that
// Lease that cannot renew thus keeps its lease until its deadline.
func (d *Detector) For(lease string) election.Detector {
	d.show(lease)
	return &alias{of: d, lease: lease}
}

type alias struct {
	of        *Detector
	lease     string
	following atomic.Pointer[following]
}

// Contact returns that of the process's Detector.
func (a *alias) Contact() election.Contact { return a.of.Contact() }

// Follow does what the Detector's does, with metrics of its own Lease.
func (a *alias) Follow(ctx context.Context, leader election.Contact, f election.Follower) {
	cfg := a.of.cfg
	cfg.Name = a.lease
	own := &Detector{cfg: cfg, handshake: a.of.handshake, secret: a.of.secret, following: &a.following}
	own.Follow(ctx, leader, election.Follower{
		Is: election.Standby{Instance: f.Is.Instance, Led: f.Is.Led, URL: f.Is.URL}, // no Mode: see Followers
		Report: func(news election.News) {
			news.Said = election.Statement{} // it is about a term of another Lease
			f.Report(news)
		},
		Writes: func(context.Context, string) bool { return false },
	})
}

// Say does nothing.
func (a *alias) Say(election.Statement) {}

// Confirmations returns nil: there are none.
func (a *alias) Confirmations() <-chan election.Confirmation { return nil }

// Followers returns the replicas that follow by an alias. They have no Mode.
func (a *alias) Followers() []election.Standby {
	return slices.DeleteFunc(a.of.Followers(), func(s election.Standby) bool { return s.Mode != "" })
}

// ContactState returns how the contact with the process of that Lease's leader is.
func (a *alias) ContactState() *election.ContactState { return contactState(a.following.Load()) }

var (
	_ election.Detector        = (*alias)(nil)
	_ election.ContactReporter = (*alias)(nil)
)
