package election

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// nominate has this process stand as a candidate, unless it rests or leaders lead in another mode, and returns what is left of v:
// who wins in mode coordinated is decided by whoever elects, once nobody holds the lease.
func (e *Elector) nominate(seen lease.Observation, last lease.Presence, v verdict, winnable, now time.Time) verdict {
	if v.action == clear {
		return v
	}
	from := e.pace.rested // also while another leads: the best candidate takes the lease from it
	if e.isOther(seen.Mode) {
		if v.action != win {
			e.candidacy.stand("")
			return v
		}
		if start := e.headStart(seen, last, winnable); from.Before(start) {
			from = start
		}
	}
	if now.Before(from) {
		e.candidacy.stand("")
		return verdict{action: wait, until: from}
	}
	e.candidacy.stand(e.candidate)
	switch {
	case v.action != win:
	case seen.Holder() == "": // whoever elects sees it, too
		v = verdict{action: wait}
	default:
		v.action = depose
	}
	return v
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
func (e *Elector) depose(ctx context.Context, seen lease.Observation, v verdict, decided time.Time) {
	free := freed(seen.Lease, ending{why: seen.Presence().LastStepDown})
	p := lease.PresenceOf(free)
	p.PresumedDead = presumedDead(seen.Presence(), v.trigger)
	p.Suspicions = nextSuspicions(e.suspicions(seen.Presence()), decided.Sub(seen.TermSince), v.trigger)
	p.WriteTo(free)
	written, err := e.api.Update(ctx, free)
	if err != nil {
		e.complain(ctx, err, "Cannot take the holder off the lease: trying again while it can be succeeded")
		e.writeFailed(seen)
		return
	}
	klog.FromContext(ctx).Info("Took the holder off the lease: a candidate is to be elected", "reason", v.reason, "epoch", seen.Epoch(), "holder", seen.Holder())
	e.view.See(written)
	e.writeSucceeded()
	if seen.Mode == ModeCoordinated {
		e.candidacy.withdraw(ctx, seen.Holder()) // if it lives, it stands again
	}
}
