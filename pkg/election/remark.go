package election

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// tell tells people, in Events, the log and the metrics, what the standby has decided that they should know.
func (e *Elector) tell(ctx context.Context, s situation, remarks []remark) {
	for _, r := range remarks {
		switch r {
		case modeIsOther, modeIsOurs:
			e.tellOfMode(ctx, r, s.seen.Mode)
		case lastEpoch:
			e.tellOfLastEpoch(ctx)
		case mayNotAct:
			e.tellOfWaiting(ctx, s)
		default:
			e.tellOfHolder(ctx, r, s)
		}
	}
}

func (e *Elector) tellOfMode(ctx context.Context, r remark, mode ModeName) {
	if r == modeIsOurs {
		e.showOtherMode(false)
		return
	}
	e.showOtherMode(true)
	e.notify(OtherMode, false, "stands by: leaders use mode %s, and this replica uses mode %s. It campaigns when the lease is free and no replica of mode %[1]s takes it", mode, e.cfg.Mode.Name())
	klog.FromContext(ctx).Info("Standing by: leaders use another mode. This replica campaigns when the lease is free and no replica of that mode takes it",
		"leaseMode", mode, "mode", e.cfg.Mode.Name())
}

func (e *Elector) tellOfLastEpoch(ctx context.Context) {
	command := "kubectl --namespace=" + e.api.Namespace + " delete lease " + e.api.Name
	e.notify(NoEpochLeft, true, "cannot lead: leaseTransitions of the Lease is %d, the highest value, so that no further term can have an epoch of its own. Delete the Lease, which ends the leader's term if there is one: %s",
		math.MaxInt32, command)
	klog.FromContext(ctx).Error(lease.ErrNoEpochLeft, "No further term can begin on this Lease. Delete it, which ends the leader's term if there is one", "command", command)
}

// tellOfWaiting says why nothing follows on the Detector's news of a death.
func (e *Elector) tellOfWaiting(ctx context.Context, s situation) {
	w, until := s.waits(e.cfg)
	sign := "silent"
	if w.sign == Dead {
		sign = "gone"
	}
	klog.FromContext(ctx).Info("Waiting although the leader's process is "+sign+": "+string(w.why), "holder", w.holder,
		"until", until.UTC().Format(time.RFC3339), "wait", until.Sub(s.now).Round(time.Millisecond))
}

func (e *Elector) tellOfHolder(ctx context.Context, r remark, s situation) {
	leader := cmp.Or(s.seen.Presence().Replica, s.seen.Holder())
	log := klog.FromContext(ctx).WithValues("leader", leader, "holder", s.seen.Holder())
	if r != holderUnaccounted {
		e.showUnaccounted(false)
		if r == holderHeard {
			log.Info("The leader is heard again")
		}
		return
	}
	e.showUnaccounted(true)
	heard, _ := s.unaccounted(e.cfg)
	command, silent, holds := e.forget(s.seen), s.now.Sub(heard).Round(time.Second), "for life"
	if s.seen.Expires() {
		holds = "for " + s.seen.Expiry(e.cfg.LeaseDuration).Sub(s.seen.Since).String()
	}
	e.notify(Unaccounted, true, "waits: replica %s holds the lease %s, has not been heard for %v, and nothing proves that its process is dead. If it is gone for good: %s",
		leader, holds, silent, command)
	log.Error(nil, "Waiting: the leader is not heard, its lease does not expire in time, and nothing proves that its process is dead. If it is gone for good, run the command",
		"holds", holds, "silent", silent, "command", command)
}

// tellOfUnproved tells people that a lease was taken from a holder that may live, and whose writes nothing refuses.
func (e *Elector) tellOfUnproved(ctx context.Context, d decision) {
	if !d.unproved {
		return
	}
	holder := d.seen.Holder()
	e.notify(Unproved, true, "has taken the lease from %q before it expired, without a fence: the address of that holder refuses connections. If its process lives after all, both may have worked for a moment", holder)
	klog.FromContext(ctx).Info("Took the lease before it expired, without a fence: the holder's address refuses connections. If its process lives after all, both may have worked for a moment",
		"holder", holder, "replica", d.seen.Presence().Replica, "epoch", d.seen.Epoch())
}

// tellNothing withdraws what people were told of why this process does not lead, because it leads now.
func (r *run) tellNothing() {
	r.memory.told = announcements{exhausted: r.memory.told.exhausted}
	r.showTold(r.memory.told)
}

// forget returns the command by which an operator declares the holder's process dead.
func (e *Elector) forget(seen lease.Observation) string {
	kubectl := "kubectl --namespace=" + e.api.Namespace + " delete "
	life, isLease := e.ownerOfHolder(seen)
	holder := seen.Presence()
	switch process := cmp.Or(holder.Instance, holder.Replica); {
	case seen.Expires():
		return "kubectl --namespace=" + e.api.Namespace + " patch lease " + e.api.Name + ` --type=merge --patch='{"spec":{"holderIdentity":""}}'`
	case isLease && e.cfg.ForgetCommand != "" && process != "":
		return e.cfg.ForgetCommand + " " + process
	case isLease:
		return kubectl + "lease " + life.name
	}
	if owner := lease.TermOwner(seen.Lease); owner != nil {
		return kubectl + strings.ToLower(owner.Kind) + " " + owner.Name
	}
	return kubectl + "lease " + e.api.Name // somebody has removed the owner
}
