package election

import (
	"context"
	"sync"
)

// peer is what the Detector knows of the process of the lease's holder.
type peer struct {
	mu      sync.Mutex
	contact Contact
	news    News
	changed chan struct{} // closed at the next change
}

func newPeer() *peer { return &peer{changed: make(chan struct{})} }

// latest returns what is known of the process behind contact, and a channel that is closed when something changes.
func (p *peer) latest(contact Contact) (News, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if contact != p.contact {
		return News{}, p.changed
	}
	return p.news, p.changed
}

// take sets what is known of the process behind contact.
func (p *peer) take(contact Contact, news News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if contact == p.contact && news == p.news {
		return
	}
	p.contact, p.news = contact, news
	close(p.changed)
	p.changed = make(chan struct{})
}

// followHolder has the Detector follow the process of whoever holds the lease, until ctx ends.
func (e *Elector) followHolder(ctx context.Context) {
	var followed struct {
		leader  Contact
		foreign bool
	}
	var following sync.WaitGroup
	stop := func() {}
	defer func() {
		stop()
		following.Wait()
	}()
	for {
		seen, changed := e.view.latest()
		next, foreign := e.contactOf(seen)
		if next != followed.leader || foreign != followed.foreign {
			stop()
			following.Wait()
			followed.leader, followed.foreign = next, foreign
			e.peer.take(next, News{})
			stop = func() {}
			if foreign {
				followCtx, cancel := context.WithCancel(ctx)
				stop = cancel
				following.Go(func() {
					e.cfg.Detector.Follow(followCtx, next, Follower{
						Report: func(news News) { e.peer.take(next, news) },
						Reads:  e.reads,
					})
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// contactOf is how to reach the process of the lease's holder, as far as that says it, and whether it is another process.
func (e *Elector) contactOf(seen observation) (_ Contact, foreign bool) {
	if seen.holder() == "" || e.identities.ours(seen.holder()) {
		return Contact{}, false
	}
	return presenceOf(seen.lease).Contact, true
}

// reads answers a leader that cannot renew: whether this process, which could succeed it, sees it on the Lease.
func (e *Elector) reads(ctx context.Context, holder string) bool {
	if !e.stands.Load() {
		return false
	}
	if _, _, err := e.follower.read(ctx); err != nil {
		return false
	}
	seen, _ := e.view.latest()
	return seen.holder() == holder
}
