package election

import (
	"cmp"
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Presence says that this process lives, by one Lease that it alone holds and renews, as mode Renewed does. Any number
// of Electors of mode ByPresence hold their leases for as long as it lasts, so they renew nothing themselves.
//
// If it cannot be renewed in time, all their terms end. It is not released, and does not begin anew, before their work
// has stopped.
type Presence struct {
	elector *Elector

	mu      sync.Mutex
	now     *present      // nil while this process is not present
	changed chan struct{} // closed when now changes
}

// present is one unbroken time of a Presence.
type present struct {
	object *metav1.OwnerReference // the Lease
	holder string                 // its holder identity, and that of all that is held by it
	over   chan struct{}          // closed when it ends
	cause  error                  // set before over is closed
	terms  sync.WaitGroup         // those that are held by it
}

// NewPresence returns a Presence that lasts while its Run does. cfg is that of its Electors. Name is that of the
// election, which the Lease of the presence tells. Mode, Priority, Preempt, Notify and Changed are ignored. It returns
// the same errors as New.
//
// Once in four lease durations Run lists all Leases of the namespace, to delete what killed processes have left: the
// namespace should not have very many.
//
// Its Detector tells the followers of this process how the presence is going, and is that of the Electors, too, which
// then tell nothing.
func NewPresence(cfg Config) (*Presence, error) {
	cfg.Mode, cfg.Priority, cfg.Preempt, cfg.Notify, cfg.Changed = Renewed{}, 0, false, nil, nil
	cfg.presence, cfg.Election = true, cmp.Or(cfg.Election, cfg.Name)
	elector, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Presence{elector: elector, changed: make(chan struct{})}, nil
}

// Run keeps this process present until ctx ends, and then deletes the Lease. It returns when everything that it started
// has ended, so not before the terms that are held by it. The Electors must have ended before ctx does: they could not
// release their leases otherwise. It may be called again after it has returned.
func (p *Presence) Run(ctx context.Context) {
	var sweeping sync.WaitGroup
	defer sweeping.Wait()
	sweeping.Go(func() {
		a := abandoned{api: p.elector.api, period: sweepAfter * p.elector.cfg.LeaseDuration}
		a.sweep(ctx)
	})
	_ = p.elector.Run(ctx, p.last)
	seen := p.observe()
	if seen.Lease == nil || seen.Holder() != "" { // it may still count
		return
	}
	if err := p.elector.api.Delete(ctx, seen.Lease.UID); err != nil {
		klog.FromContext(ctx).Error(err, "The Lease of this process's presence is left: delete it", "object", p.elector.api.Name)
	}
}

// sweepAfter is for how many lease durations a presence is left alone that nobody renews.
const sweepAfter = 4

// last is what the Elector does in its terms: this process is present.
func (p *Presence) last(ctx context.Context, term Term) error {
	now := &present{
		object: lease.OwnerReference(term.Token().Name, term.Token().UID),
		holder: term.Token().Holder, over: make(chan struct{}),
	}
	p.become(now)
	<-ctx.Done()
	p.become(nil)
	now.cause = context.Cause(ctx)
	close(now.over)
	now.terms.Wait()
	return nil
}

func (p *Presence) become(now *present) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
	close(p.changed)
	p.changed = make(chan struct{})
}

// hold returns the present time of this process, which then does not end before its terms.Done is called. It returns
// nil if this process is not present.
func (p *Presence) hold() *present {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.now.terms.Add(1)
	}
	return p.now
}

// absent returns nil while this process is present. Otherwise the channel is closed when that may have changed.
func (p *Presence) absent() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		return nil
	}
	return p.changed
}

// observe returns what was seen of this process's own presence.
func (p *Presence) observe() lease.Observation {
	p.elector.mu.Lock()
	view := p.elector.view
	p.elector.mu.Unlock()
	if view == nil {
		return lease.Observation{}
	}
	seen, _ := view.Latest()
	return seen
}

// fault says why this process cannot be present, as people were told in the log; empty if it can.
func (p *Presence) fault() string { return p.elector.fault() }

// errAbsent is the error of an attempt that this process makes while it is not present.
var errAbsent = errors.New("this process cannot renew its presence")
