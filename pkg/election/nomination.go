package election

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// nominate has this process stand as a candidate, or not, as the standby has decided.
func (e *Elector) nominate(n nomination) {
	switch n {
	case stand:
		e.candidacy.stand(e.candidate)
	case stepBack:
		e.candidacy.stand("")
	}
}

// withdraw has this process stand no more.
func (e *Elector) withdraw() {
	if e.candidacy != nil {
		e.candidacy.stand("")
	}
}

// waitWithdrawn waits until no candidate of this process is left, for as long as a request may take: whoever elects would ask it
// when the lease is released, and it would be named again.
func (e *Elector) waitWithdrawn() {
	if e.candidacy == nil {
		return
	}
	timer := time.NewTimer(e.cfg.requestTimeout())
	defer timer.Stop()
	select {
	case <-e.candidacy.left():
	case <-timer.C:
	}
}

// depose takes a holder off the Lease who can be succeeded, by one compare-and-swap on the revision that was judged; then somebody
// else is named. Only after that it takes the holder's candidate away, which would be asked in vain, for half a second: nothing
// guards that deletion, and what was judged may be late news of a leader that is well. Whoever elects asks the others meanwhile.
func (e *Elector) depose(ctx context.Context, d decision) {
	seen := d.seen
	free := freed(seen.Lease, ending{why: seen.Presence().LastStepDown})
	p := lease.PresenceOf(free)
	p.PresumedDead = presumedDead(seen.Presence(), d.trigger)
	p.Suspicions = nextSuspicions(e.suspicions(seen.Presence()), d.takeover.Decided.Sub(seen.TermSince), d.trigger)
	p.WriteTo(free)
	written, err := e.api.Update(ctx, free)
	if err != nil {
		e.complain(ctx, err, "Cannot take the holder off the lease: trying again while it can be succeeded")
		e.writeFailed(seen)
		return
	}
	klog.FromContext(ctx).Info("Took the holder off the lease: a candidate is to be elected", "reason", d.reason, "epoch", seen.Epoch(), "holder", seen.Holder())
	e.view.See(written)
	e.writeSucceeded()
	if seen.Mode == ModeCoordinated {
		e.candidacy.withdraw(ctx, seen.Holder()) // if it lives, it stands again
	}
}
