package election

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// state is a state of the diagram at Elector.
type state string

const (
	standingBy  state = "standing by"
	campaigning state = "campaigning"
	leads       state = "leading"
	draining    state = "draining"
	quarantined state = "quarantined"
	// stopped is the state of an Elector whose Run does not run.
	stopped state = "stopped"
)

// become changes the state to next. It panics unless the current state is one of from: the diagram has no such move.
func (r *run) become(next state, from ...state) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(from, r.state) {
		panic(fmt.Sprintf("election: %s while %s", next, r.state))
	}
	r.state = next
}

// becomeStandby: there is no term, and no work of one.
func (r *run) becomeStandby() {
	r.become(standingBy, campaigning, draining)
}

// becomeCampaigning: an attempt to acquire the lease begins.
func (r *run) becomeCampaigning(ctx context.Context, reason string) {
	r.become(campaigning, standingBy)
	klog.FromContext(ctx).V(2).Info("Campaigning", "reason", reason)
}

// becomeLeading: a term has begun. All work of the term before has been joined.
func (r *run) becomeLeading(ctx context.Context, term Term, reason string) {
	r.become(leads, campaigning)
	r.tellNothing()
	message := "Leading"
	if r.cfg.presence {
		message = "Present: the leases of this process last for as long as it renews this one"
	}
	klog.FromContext(ctx).Info(message, "reason", reason, "holder", term.Token().Holder)
	r.countTerm()
	r.showLeading(true) //nolint:contextcheck // nothing in it waits; who sees it finds the line above in the log
	r.notify(Acquired, false, "leads%s: %s", as(term), reason)
}

// becomeDraining: the term's context has ended, and its work is stopping. That takes no longer than the drain timeout,
// or else the next line in the log says so.
func (r *run) becomeDraining(ctx context.Context, term Term, cause error) {
	r.become(draining, leads)
	r.showLeading(false) //nolint:contextcheck // nothing in it waits
	r.countEnd(cause)
	r.notifyEnd(term, cause)
	message := "The term has ended"
	if r.cfg.presence {
		message = "Not present any more: all terms of this process end"
	}
	klog.FromContext(ctx).Info(message, "reason", causeOf(cause), "cause", cause.Error(), "drainTimeout", r.cfg.EffectiveDrainTimeout())
}

// becomeQuarantined: the work has not stopped in time. This process does not campaign, and does not release the lease,
// until it has.
func (r *run) becomeQuarantined(ctx context.Context, drain time.Duration) {
	r.become(quarantined, draining)
	r.showQuarantine(true)
	others := r.unreleased()
	if ctx.Err() != nil {
		r.notify(Quarantine, true, "waits in its shutdown: work of its term has not stopped within %v. Its log has the stacks. %s", drain, others)
		tellOfShutdown(ctx, others, drain)
		return
	}
	r.notify(Quarantine, true, "is quarantined: work of its term has not stopped within %v. It serves, but does not campaign until the work has stopped. Its log has the stacks. %s", drain, others)
	klog.FromContext(ctx).Error(nil, "Quarantined: the term's work has not stopped in time, and this replica does not campaign until it has. "+others, "drainTimeout", drain)
}

// joinLate waits until the late work has stopped. If ctx ends meanwhile, it says that the shutdown waits for that. If
// ctx had ended before, becomeQuarantined has said so. A lease that does not expire is given up when it would have.
func (r *run) joinLate(ctx context.Context, w *work, c claim, cause error) {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	lapse := time.NewTimer(r.cfg.LeaseDuration)
	defer lapse.Stop()
	for {
		select {
		case <-w.returned:
			return
		case <-ended:
			tellOfShutdown(ctx, r.unreleased(), r.cfg.EffectiveDrainTimeout())
			ended = nil
		case <-lapse.C:
			r.lapse(ctx, c, cause, lapse)
		}
	}
}

// lapse gives up a lease that would have expired by now, if it does not by itself. If that fails, it tries again after
// a retry period.
func (r *run) lapse(ctx context.Context, c claim, cause error, again *time.Timer) {
	held, ok := c.(sharedClaim)
	if !ok {
		return
	}
	if err := held.lapse(ctx, cause); err != nil {
		klog.FromContext(ctx).V(2).Info("Could not give up the lease of a term whose work has not stopped: trying again", "err", err)
		again.Reset(r.cfg.RetryPeriod)
	}
}

// tellOfShutdown says why Run does not return. others is what becomes of the lease.
func tellOfShutdown(ctx context.Context, others string, drain time.Duration) {
	klog.FromContext(ctx).Error(nil, "Shutdown waits for work that has not stopped: Run returns when it has. A program that must end earlier has to exit its process. "+others, "drainTimeout", drain)
}

// unreleased says what becomes of the lease of a term whose work has not stopped.
func (r *run) unreleased() string {
	switch seen, _ := r.view.Latest(); {
	case seen.Holder() != "" && !r.identities.ours(seen.Holder()):
		return "Another replica holds the lease"
	case seen.Holder() == "":
		return "Nobody holds the lease: another replica can take it"
	default:
		return r.cfg.kind().unreleased
	}
}

// becomeDrained: the late work has stopped. From here the term ends as if the work had been in time. ends: Run returns
// next.
func (r *run) becomeDrained(ctx context.Context, ended time.Time, ends bool) {
	r.become(draining, quarantined)
	r.showQuarantine(false)
	next, message := "campaigns again", "The late work has stopped: this replica campaigns again"
	if ends {
		next, message = "goes on with its shutdown", "The late work has stopped: this replica goes on with its shutdown"
	}
	r.notify(QuarantineOver, false, "%s: the late work has stopped", next)
	klog.FromContext(ctx).Info(message, "drain", time.Since(ended).Round(time.Millisecond))
}
