package election

import (
	"context"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// peer is what this process knows of the process that holds the lease, beyond the Lease.
type peer struct {
	mu      sync.Mutex
	contact Contact
	news    News
	owned   owner         // what stands for the life of the holder
	life    *lease.View   // what is known of that; nil: nothing is watched
	gone    owner         // the one that was found to stand for a holder's life no more, last
	changed chan struct{} // closed at the next change
}

func newPeer() *peer { return &peer{changed: make(chan struct{})} }

// latest returns what is known of the process that contact reaches, and a channel that is closed when something
// changes.
func (p *peer) latest(contact Contact) (News, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if contact != p.contact {
		return News{}, p.changed
	}
	return p.news, p.changed
}

// take records what is known of the process that contact reaches.
func (p *peer) take(contact Contact, news News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if news.Sign == NoSign { // Since says since when there has been no sign
		news.Since = time.Now()
		if contact == p.contact && p.news.Sign == NoSign && !p.news.Since.IsZero() {
			news.Since = p.news.Since
		}
	}
	if contact == p.contact && news == p.news {
		return
	}
	p.contact, p.news = contact, news
	close(p.changed)
	p.changed = make(chan struct{})
}

// follow records in which view is what stands for a holder's life.
func (p *peer) follow(of owner, view *lease.View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owned, p.life = of, view
}

// lifeOf returns what is known of the Lease that stands for a holder's life; the zero Observation if it is not watched
// yet.
func (p *peer) lifeOf(of owner) lease.Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil || p.owned != of {
		return lease.Observation{}
	}
	seen, _ := p.life.Latest()
	return seen
}

// isGone reports whether that owner is known to stand for a holder's life no more.
func (p *peer) isGone(of owner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return of != (owner{}) && of == p.gone
}

// setGone records that an owner stands for a holder's life no more.
func (p *peer) setGone(of owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of == p.gone {
		return
	}
	p.gone = of
	close(p.changed)
	p.changed = make(chan struct{})
}

// followHolder makes the Detector follow the process of the lease's current holder, until ctx ends.
func (r *run) followHolder(ctx context.Context) {
	type leads struct {
		Contact
		waits bool
	}
	of := func(seen lease.Observation) (leads, bool) {
		contact, foreign := r.contactOf(seen)
		return leads{contact, foreign && r.waitsForExpiry(seen)}, foreign
	}
	whileShown(ctx, r.view, of, func(ctx context.Context, shown leads, foreign bool) {
		leader := shown.Contact
		r.peer.take(leader, News{})
		if foreign {
			r.cfg.Detector.Follow(ctx, leader, Follower{
				Is:     Standby{Replica: r.cfg.Replica, Instance: r.cfg.Instance, Mode: r.cfg.Mode.Name(), Priority: r.cfg.Priority, Led: r.lastHolder(), URL: r.cfg.URL},
				Report: func(news News) { r.peer.take(leader, news) },
				Writes: r.couldLead,
				Waits:  shown.waits,
			})
		}
	})
}

// tellChanges calls Config.Changed for each holder that the Lease shows, until ctx ends.
func (r *run) tellChanges(ctx context.Context) {
	type holder struct{ identity, replica, url string }
	var told holder
	for {
		seen, changed := r.view.Latest()
		said := seen.Presence()
		if now := (holder{seen.Holder(), said.Replica, said.URL}); now != told {
			told = now
			r.cfg.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// waitsForExpiry reports whether this process waits for the lease to expire even if its holder's process is found dead
// over the network.
func (r *run) waitsForExpiry(seen lease.Observation) bool {
	holder := seen.Presence()
	return !r.cfg.bothFenced(holder) && !r.cfg.bothRisk(holder) && !r.processLock.neighbour(holder) && seen.Expires()
}

// lastHolder returns the holder identity of this process's latest term, which may be running; empty if it has led none.
func (e *Elector) lastHolder() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current.holder
}

// whileShown calls do with what of returns for the Lease in the view. Whenever that changes, it ends the context of the
// call, waits until do has returned, and calls it again. It returns after ctx has ended and do has returned.
func whileShown[K comparable](ctx context.Context, v *lease.View, of func(lease.Observation) (K, bool), do func(context.Context, K, bool)) {
	var current struct {
		shown K
		some  bool
	}
	var running sync.WaitGroup
	stop := func() {}
	for first := true; ; first = false {
		seen, changed := v.Latest()
		if shown, some := of(seen); first || shown != current.shown || some != current.some {
			stop()
			running.Wait()
			current.shown, current.some = shown, some
			var callCtx context.Context
			callCtx, stop = context.WithCancel(ctx)
			running.Go(func() { do(callCtx, shown, some) })
		}
		select {
		case <-ctx.Done():
			stop()
			running.Wait()
			return
		case <-changed:
		}
	}
}

// contactOf returns how to reach the process of the lease's holder, as far as the Lease says so. foreign: it is another
// process.
func (e *Elector) contactOf(seen lease.Observation) (_ Contact, foreign bool) {
	if seen.Holder() == "" || e.identities.ours(seen.Holder()) {
		return Contact{}, false
	}
	return Contact(seen.Presence().Contact), true
}
