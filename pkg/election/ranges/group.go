package ranges

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/lease"
	"github.com/regent-project/regent/pkg/election/internal/share"
)

// Config describes the ranges, and how this process stands for election in each.
type Config struct {
	// Election is what all ranges have in common. Name is the name of the election: the Lease of range k is
	// <Name>-<k>. Mode, Election, Assigned and Changed are set by New; Priority and Preempt must not be set.
	Election election.Config
	// Ranges is how many ranges there are. All processes must have the same number.
	Ranges int
}

// LeadFunc does the work of one term of a range, as election.LeadFunc does that of one Lease.
type LeadFunc func(ctx context.Context, k int, term election.Term) error

// Group makes this process lead its share of the ranges, for as long as Run lasts. The shares follow from who is
// present: see assign. A process that comes gets its share by orderly handovers, one after the other, when it has been
// present for a lease duration. What a process leaves is spread over all others.
type Group struct {
	cfg      election.Config
	presence *election.Presence
	leases   *leases
	contacts *contacts // nil without a Detector
	electors []*election.Elector
	roster   roster // Run's goroutine owns it

	// given says how often this process has lately given a range away, to which it has come back. balance's
	// goroutine owns it.
	given map[int]gift

	mu       sync.Mutex
	members  map[string]member // by holder identity
	assigned []string          // instances, by range
	changed  chan struct{}     // closed when assigned changes
}

// New returns a Group, and starts nothing. It returns the errors of election.New.
func New(cfg Config) (*Group, error) {
	if cfg.Ranges < 1 {
		return nil, fmt.Errorf("ranges: Config.Ranges %d must be at least 1", cfg.Ranges)
	}
	if cfg.Election.Priority != 0 || cfg.Election.Preempt {
		return nil, errors.New("ranges: Config.Election.Priority and Preempt contradict ranges: weights say who leads how many (Weight)")
	}
	if cfg.Election.Client == nil {
		return nil, errors.New("ranges: Config.Election.Client is nil: give it a client for the namespace of the Leases")
	}
	g := &Group{
		cfg:     cfg.Election,
		leases:  newLeases(cfg.Election.Client, cfg.Election.RenewDeadline/3, cfg.Election.RetryPeriod),
		roster:  roster{election: cfg.Election.Name, fallback: cfg.Election.LeaseDuration},
		changed: make(chan struct{}),
		given:   map[int]gift{},
	}
	var err error
	each := cfg.Election
	each.Client = g.leases
	if g.presence, err = election.NewPresence(each); err != nil {
		return nil, err
	}
	each.Mode, each.Election = election.ByPresence{Presence: g.presence}, cfg.Election.Name
	if each.Detector != nil && each.Detection != election.DetectOff {
		g.contacts = &contacts{Detector: each.Detector, is: g.self, heard: g.reassign}
		each.Detector = g.contacts
	}
	for k := range cfg.Ranges {
		each.Name = leaseName(cfg.Election.Name, k)
		each.Assigned = func() (string, <-chan struct{}) { return g.assignedTo(k) }
		elector, err := election.New(each)
		if err != nil {
			return nil, err
		}
		g.electors = append(g.electors, elector)
	}
	return g, nil
}

// Elector returns what elects this process for range k, to ask for its Status and to step down. Do not call its Run.
func (g *Group) Elector(k int) *election.Elector { return g.electors[k] }

// Run calls lead for each term of each range, of one range after the other, and of different ranges at the same time,
// until ctx ends or lead asks to exit. Then the terms end one after the other, within a retry period, so that each
// range has a leader until its turn comes. Run returns what the first Elector returns: see election.Elector.Run, also
// for what must go on after the end of ctx, which here takes a retry period more. By then everything that it started
// has ended.
func (g *Group) Run(ctx context.Context, lead LeadFunc) error {
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	present, leave := context.WithCancel(beside)
	var watching, presence, balancing sync.WaitGroup
	watching.Go(func() { g.leases.run(beside, g.cfg.Name) })
	watching.Go(func() { g.follow(beside) })
	presence.Go(func() { g.presence.Run(present) })
	ctx, exit := context.WithCancelCause(ctx)
	defer exit(nil)
	var contests []contest
	for k, elector := range g.electors {
		contests = append(contests, begin(beside, elector, func(ctx context.Context, term election.Term) error { return lead(ctx, k, term) }, exit))
	}
	balancing.Go(func() { g.balance(ctx) })
	<-ctx.Done()
	balancing.Wait()
	endAll(contests, context.Cause(ctx), g.cfg.RetryPeriod)
	for _, c := range contests {
		<-c.ended
	}
	leave()
	presence.Wait()
	end()
	watching.Wait()
	return context.Cause(ctx)
}

// self describes this process to those that it follows.
func (g *Group) self() election.Standby {
	own := g.electors[0].Names()
	present, _ := g.member(own.Instance)
	return election.Standby{
		Replica: own.Replica, Instance: own.Instance, Mode: election.ByPresence{}.Name(), URL: g.cfg.URL, Led: present.holder,
	}
}

// follow keeps up to date who is present, until ctx ends.
func (g *Group) follow(ctx context.Context) {
	for ctx.Err() == nil {
		all, changed := g.leases.all()
		members := g.roster.look(all, time.Now())
		g.mu.Lock()
		g.members = members
		g.mu.Unlock()
		g.reassign()
		g.keepContact(ctx, members)
		timer := time.NewTimer(g.untilNext(members))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	g.keepContact(ctx, nil)
}

// untilNext returns how long it takes until somebody's presence may have expired.
func (g *Group) untilNext(members map[string]member) time.Duration {
	next := time.Now().Add(g.cfg.LeaseDuration)
	for _, m := range members {
		if m.until.Before(next) {
			next = m.until
		}
	}
	return max(time.Until(next), time.Millisecond)
}

// keepContact keeps in touch with all others that are present.
func (g *Group) keepContact(ctx context.Context, members map[string]member) {
	if g.contacts == nil {
		return
	}
	own, with := g.contacts.Contact(), map[election.Contact]bool{}
	for _, m := range members {
		if m.contact != own && m.contact != (election.Contact{}) {
			with[m.contact] = true
		}
	}
	g.contacts.keep(ctx, with)
}

// reassign decides anew who should lead which range.
func (g *Group) reassign() {
	all, _ := g.leases.all()
	g.mu.Lock()
	defer g.mu.Unlock()
	holders, weights, leaving := make([]string, len(g.electors)), map[string]int{}, map[string]bool{}
	for k := range holders {
		if l := all[leaseName(g.cfg.Name, k)]; l != nil {
			holders[k] = ptr.Deref(l.Spec.HolderIdentity, "")
			leaving[holderThatLeft(l)] = true
		}
	}
	for holder, m := range g.members {
		if g.seemsWell(m) && !leaving[holder] {
			weights[m.instance] = m.weight
		}
	}
	for k, holder := range holders {
		if holders[k] = g.members[holder].instance; weights[holders[k]] == 0 {
			holders[k] = ""
		}
	}
	assigned := share.Assign(holders, weights)
	if slices.Equal(assigned, g.assigned) {
		return
	}
	g.assigned = assigned
	close(g.changed)
	g.changed = make(chan struct{})
}

// holderThatLeft returns the holder that has released a Lease because its process stops; empty if nobody has. Its other
// ranges are free a moment later, and its presence goes last: nobody should wait until then.
func holderThatLeft(l *coordinationv1.Lease) string {
	if last := lease.PredecessorOf(l).Last; last != nil && last.Cause == string(election.Shutdown) {
		return last.Holder
	}
	return ""
}

// seemsWell reports whether a member shows no sign that it is dead, hangs, or cannot renew its presence.
func (g *Group) seemsWell(m member) bool {
	if g.contacts == nil {
		return true
	}
	news := g.contacts.latest(m.contact)
	return news.Sign != election.Dead && news.Sign != election.Silent && news.Said != (election.Statement{Holder: m.holder, Condition: election.Over})
}

// assignedTo returns which instance should lead range k, and a channel that is closed when that changes.
func (g *Group) assignedTo(k int) (string, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k >= len(g.assigned) {
		return "", g.changed
	}
	return g.assigned[k], g.changed
}
