package ranges

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/regent-project/regent/pkg/election"
)

// contacts keeps in touch with each other process once, however many ranges that leads. It is the Detector of all
// Electors of the ranges.
type contacts struct {
	election.Detector
	is func() election.Standby
	// heard is called before the Electors hear what has become known of a process.
	heard func()

	mu    sync.Mutex
	peers map[election.Contact]*contact
}

// contact is another process.
type contact struct {
	news      election.News
	followers map[*election.Follower]struct{}
	end       func() // ends the contact, and returns when it has ended; nil: there is none
}

// peer returns what is known of a process. The caller holds mu.
func (c *contacts) peer(of election.Contact) *contact {
	p := c.peers[of]
	if p == nil {
		p = &contact{followers: map[*election.Follower]struct{}{}}
		if c.peers == nil {
			c.peers = map[election.Contact]*contact{}
		}
		c.peers[of] = p
	}
	return p
}

// keep makes contact with these processes, and ends it with all others. It is called by one goroutine at a time, and
// once more without any before that ends.
func (c *contacts) keep(ctx context.Context, with map[election.Contact]bool) {
	c.mu.Lock()
	var ends []func()
	for of, p := range c.peers {
		if p.end != nil && !with[of] {
			ends = append(ends, p.end)
			p.end, p.news = nil, election.News{}
		}
		c.forget(of, p)
	}
	for of := range with {
		if p := c.peer(of); p.end == nil {
			p.end = c.begin(ctx, of)
		}
	}
	c.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// forget removes a process with which nobody has to do any more. The caller holds mu.
func (c *contacts) forget(of election.Contact, p *contact) {
	if p.end == nil && len(p.followers) == 0 {
		delete(c.peers, of)
	}
}

// begin keeps in touch with a process until the returned function is called.
func (c *contacts) begin(ctx context.Context, of election.Contact) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		c.Detector.Follow(ctx, of, election.Follower{
			Is:     c.is(),
			Report: func(news election.News) { c.report(of, news) },
			Writes: func(ctx context.Context, holder string) bool { return c.writes(ctx, of, holder) },
		})
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// report takes what has become known of a process.
func (c *contacts) report(of election.Contact, news election.News) {
	c.mu.Lock()
	c.peer(of).news = news
	c.mu.Unlock()
	c.heard()
	c.mu.Lock()
	defer c.mu.Unlock()
	for follower := range c.peer(of).followers {
		follower.Report(news)
	}
}

// writes asks the Electors that follow a process whether they could write.
func (c *contacts) writes(ctx context.Context, of election.Contact, holder string) bool {
	c.mu.Lock()
	followers := slices.Collect(maps.Keys(c.peer(of).followers))
	c.mu.Unlock()
	return slices.ContainsFunc(followers, func(f *election.Follower) bool { return ctx.Err() == nil && f.Writes(ctx, holder) })
}

// latest returns what is known of a process.
func (c *contacts) latest(of election.Contact) election.News {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[of]; p != nil {
		return p.news
	}
	return election.News{}
}

// Follow tells the Elector of a range what is known of a process.
func (c *contacts) Follow(ctx context.Context, leader election.Contact, f election.Follower) {
	if leader != (election.Contact{}) {
		c.mu.Lock()
		p := c.peer(leader)
		p.followers[&f] = struct{}{}
		f.Report(p.news)
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(p.followers, &f)
			c.forget(leader, p)
		}()
	}
	<-ctx.Done()
}

// Say does nothing: the Presence speaks for all ranges.
func (c *contacts) Say(election.Statement) {}

// Confirmations returns nil: the Presence receives them.
func (c *contacts) Confirmations() <-chan election.Confirmation { return nil }

var _ election.Detector = (*contacts)(nil)
