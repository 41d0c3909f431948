package ranges

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// Config describes the ranges, and how this process stands for election in each.
type Config struct {
	// Election is what all ranges have in common. Name is the name of the election: the Lease of range k is
	// <Name>-<k>, and with one range it is <Name>. Mode, Election, Ranges, Assigned and Changed are set by New;
	// Priority and Preempt must not be set.
	Election election.Config
	// Ranges is how many ranges there should be. There are as many when all processes that are present want that.
	Ranges int
}

// LeadFunc does the work of one term of a range, as election.LeadFunc does that of one Lease.
type LeadFunc func(ctx context.Context, of Range, term election.Term) error

// Group makes this process lead its share of the ranges, for as long as Run lasts. The shares follow from who is
// present. A process that comes gets its share by orderly handovers, one after the other, when it has been present for
// a lease duration. What a process leaves is spread over all others.
type Group struct {
	cfg      election.Config // of each range, but for its Name and what is asked of its division
	presence *election.Presence
	leases   *leases
	contacts *contacts // nil without a Detector
	names    election.Names
	roster   roster                     // follow's goroutine owns it, and doubt
	doubt    error                      // why the number is not known, as people were told
	marked   chan *coordinationv1.Lease // the Lease of the election, with a change that does not go on

	mu      sync.Mutex
	held    string            // what keeps this process from the election before Run is called
	members map[string]member // by holder identity
	number  number
	stage   stage
	restage chan struct{} // closed when stage changes
	now     *division     // nil while this process is in no range's election
}

// New returns a Group, and starts nothing. It returns the errors of election.New.
func New(cfg Config) (*Group, error) {
	if cfg.Ranges < 1 || cfg.Ranges > MaxRanges {
		return nil, fmt.Errorf("ranges: Config.Ranges %d must be from 1 to %d", cfg.Ranges, MaxRanges)
	}
	if cfg.Election.Priority != 0 || cfg.Election.Preempt {
		return nil, errors.New("ranges: Config.Election.Priority and Preempt contradict ranges: weights say who leads how many (Weight)")
	}
	if cfg.Election.Client == nil {
		return nil, errors.New("ranges: Config.Election.Client is nil: give it a client for the namespace of the Leases")
	}
	each := cfg.Election
	g := &Group{
		leases:  newLeases(each.Client, each.RenewDeadline/3, each.RetryPeriod),
		roster:  roster{election: each.Name, fallback: each.LeaseDuration},
		restage: make(chan struct{}),
		marked:  make(chan *coordinationv1.Lease),
	}
	each.Client, each.Ranges = g.leases, cfg.Ranges
	var err error
	if g.presence, err = election.NewPresence(each); err != nil {
		return nil, err
	}
	each.Mode, each.Election = election.ByPresence{Presence: g.presence}, each.Name
	if each.Detector != nil && each.Detection != election.DetectOff {
		g.contacts = &contacts{Detector: each.Detector, is: g.self, heard: g.reassign}
		each.Detector = g.contacts
	}
	g.cfg = each
	// what is wrong with any of them is said now
	first, err := g.divide(stage{do: work, of: cfg.Ranges})
	if err != nil {
		return nil, err
	}
	g.names = first.electors[0].Names()
	first.close()
	return g, nil
}

// MaxRanges is how many ranges an election can have. Each costs every process an Elector.
const MaxRanges = 1024

// StepDown asks the current term of range k to end: see election.Elector.StepDown. It returns election.ErrNotLeading
// also if there is no such range.
func (g *Group) StepDown(k int, reason, to string) (election.Term, error) {
	g.mu.Lock()
	d := g.now
	g.mu.Unlock()
	if d == nil || k < 0 || k >= len(d.electors) {
		return election.Term{}, fmt.Errorf("%w: range %d", election.ErrNotLeading, k)
	}
	return d.electors[k].StepDown(reason, to)
}

// Hold says in Status what keeps this process from the election before Run is called; empty: nothing does any more. Any
// goroutine may call it.
func (g *Group) Hold(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = why
}

// Close removes the series of the election from the metrics: see election.Elector.Close. Run must have returned, and
// must not be called again.
func (g *Group) Close() {
	if g.now != nil {
		g.now.close()
	}
}

// errNumber is why the terms of one number of ranges end.
var errNumber = errors.New("the number of ranges changes")

// Run calls lead for each term of each range, of one range after the other, and of different ranges at the same time,
// until ctx ends or lead asks to exit. Then the terms end one after the other, within a retry period, so that each
// range has a leader until its turn comes. Run returns what the first Elector returns: see election.Elector.Run, also
// for what must go on after the end of ctx, which here takes a retry period more. By then everything that it started
// has ended.
func (g *Group) Run(ctx context.Context, lead LeadFunc) error {
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	present, leave := context.WithCancel(beside)
	var watching, presence sync.WaitGroup
	watching.Go(func() { g.leases.run(beside, g.cfg.Name) })
	watching.Go(func() { g.follow(beside) })
	watching.Go(func() { g.giveUp(beside) })
	presence.Go(func() { g.presence.Run(present) })
	cause := errNumber
	for errors.Is(cause, errNumber) {
		cause = g.pursue(ctx, lead)
	}
	leave()
	presence.Wait()
	end()
	watching.Wait()
	return cause
}

// pursue does what the present stage says, until that is another one, or ctx ends, or an Elector has ended by itself.
// It returns which, when all has ended that it started.
func (g *Group) pursue(ctx context.Context, lead LeadFunc) error {
	ctx, over := context.WithCancelCause(ctx)
	defer over(nil)
	g.mu.Lock()
	s, changed := g.stage, g.restage
	g.mu.Unlock()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-changed:
			over(errNumber)
		}
	})
	if s.do != work && s.do != gather {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	d, err := g.divide(s) //nolint:contextcheck // nothing in it waits
	if err != nil {
		over(err)
		return err
	}
	g.enter(d)
	if s.do == work {
		watching.Go(func() { d.balance(ctx) })
		return d.run(ctx, lead, over)
	}
	watching.Go(func() { d.change(ctx) })
	return d.run(ctx, d.hold, over)
}

// enter makes d what this process stands for election in.
func (g *Group) enter(d *division) {
	g.mu.Lock()
	before := g.now
	g.now = d
	g.mu.Unlock()
	if before != nil {
		before.close() // after the new one is shown, so that counters go on
	}
	g.reassign()
}

// self describes this process to those that it follows.
func (g *Group) self() election.Standby {
	present, _ := g.member(g.names.Instance)
	return election.Standby{
		Replica: g.names.Replica, Instance: g.names.Instance, Mode: election.ByPresence{}.Name(), URL: g.cfg.URL, Led: present.holder,
	}
}

// follow keeps up to date who is present and how many ranges there are, until ctx ends.
func (g *Group) follow(ctx context.Context) {
	for ctx.Err() == nil {
		all, changed := g.leases.all()
		members := g.roster.look(all, time.Now())
		g.mu.Lock()
		g.members = members
		g.mu.Unlock()
		if all != nil {
			g.decide(ctx, all[g.cfg.Name].lease())
		}
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

// decide takes what the Lease of the election says, and decides what this process does.
func (g *Group) decide(ctx context.Context, of *coordinationv1.Lease) {
	now, err := numberOn(of)
	switch {
	case err != nil && g.doubt == nil:
		klog.FromContext(ctx).Error(err, "It is not known how many ranges there are: this process goes on as before, and acquires nothing")
	case err == nil && g.doubt != nil:
		klog.FromContext(ctx).Info("It is known again how many ranges there are", "ranges", now.Ranges)
	}
	if g.doubt = err; err != nil {
		return
	}
	g.mu.Lock()
	wants := map[string]int{g.names.Instance: g.cfg.Ranges}
	for _, m := range g.members {
		wants[m.instance] = m.wants
	}
	before, next := g.stage, stageOf(now, wants, g.names.Instance)
	told := g.number.Ranges != now.Ranges && next.do == work && now.Ranges != g.cfg.Ranges
	g.number = now
	if before != next {
		g.stage = next
		close(g.restage)
		g.restage = make(chan struct{})
	}
	g.mu.Unlock()
	if before != next {
		klog.FromContext(ctx).V(2).Info("What this process does in the election by ranges", "ranges", next.of, "next", next.next, "waits", next.waits())
	}
	if told {
		klog.FromContext(ctx).Info("There is another number of ranges than this process wants: it changes when all that are present want the same", "ranges", now.Ranges, "wanted", g.cfg.Ranges)
	}
	if next.isGivenUp(now) {
		select {
		case g.marked <- of:
		default: // it is being given up
		}
	}
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
	if g.now != nil {
		g.now.assign(all, g.members)
	}
}

// member returns the process of that instance, if it is present.
func (g *Group) member(instance string) (member, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if m.instance == instance {
			return m, true
		}
	}
	return member{}, false
}

// seemsWell reports whether a member shows no sign that it is dead, hangs, or cannot renew its presence.
func (g *Group) seemsWell(m member) bool {
	if g.contacts == nil {
		return true
	}
	news := g.contacts.latest(m.contact)
	return news.Sign != election.Dead && news.Sign != election.Silent && news.Said != (election.Statement{Holder: m.holder, Condition: election.Over})
}
