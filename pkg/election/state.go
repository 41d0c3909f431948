package election

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// state is where an Elector is in its diagram.
type state string

const (
	standingBy  state = "standing by"
	campaigning state = "campaigning"
	leads       state = "leading"
	draining    state = "draining"
	quarantined state = "quarantined"
)

// become moves from one of the given states to another. A move that the diagram does not have is a bug.
func (r *run) become(next state, from ...state) {
	if !slices.Contains(from, r.state) {
		panic(fmt.Sprintf("election: %s while %s", next, r.state))
	}
	r.state = next
}

// becomeStandby: no term, nothing of ours is working.
func (r *run) becomeStandby() {
	r.become(standingBy, campaigning, draining)
}

// becomeCampaigning: an attempt to acquire is under way.
func (r *run) becomeCampaigning(ctx context.Context, reason string) {
	r.become(campaigning, standingBy)
	klog.FromContext(ctx).V(2).Info("Campaigning", "reason", reason)
}

// becomeLeading: the term has begun. Everything of the one before has been joined.
func (r *run) becomeLeading(ctx context.Context, term Term, reason string) {
	r.become(leads, campaigning)
	r.tellNothing()
	leading.WithLabelValues(r.cfg.Name).Set(1)
	termsStarted.WithLabelValues(r.cfg.Name).Inc()
	r.notify(Acquired, false, "leads%s: %s", as(term), reason)
	klog.FromContext(ctx).Info("Leading", "reason", reason, "holder", term.Token().Holder)
}

// becomeDraining: the term's context has ended, its work is stopping.
func (r *run) becomeDraining(ctx context.Context, term Term, cause error) {
	r.become(draining, leads)
	leading.WithLabelValues(r.cfg.Name).Set(0)
	termsEnded.WithLabelValues(r.cfg.Name, string(causeOf(cause))).Inc()
	r.notifyEnd(term, cause)
	klog.FromContext(ctx).Info("The term has ended", "reason", causeOf(cause), "cause", cause.Error())
}

// becomeQuarantined: the work is late, so the lease is left to expire and this process does not campaign.
func (r *run) becomeQuarantined(ctx context.Context, drain time.Duration) {
	r.become(quarantined, draining)
	quarantine.WithLabelValues(r.cfg.Name).Set(1)
	others := r.cfg.kind().unreleased
	r.notify(Quarantine, true, "is quarantined: work of its term has not stopped within %v. It serves, and does not campaign until that has; its log has the stacks. %s", drain, others)
	klog.FromContext(ctx).Error(nil, "Quarantined: the term's work has not stopped in time, and this replica does not campaign until it has. "+others, "drainTimeout", drain)
}

// becomeWhole: the late work has stopped. What is left of draining is as if it had not been late.
func (r *run) becomeWhole(ctx context.Context, ended time.Time) {
	r.become(draining, quarantined)
	quarantine.WithLabelValues(r.cfg.Name).Set(0)
	r.notify(QuarantineOver, false, "campaigns again: the late work has stopped")
	klog.FromContext(ctx).Info("The late work has stopped: this replica campaigns again", "drain", time.Since(ended).Round(time.Millisecond))
}
