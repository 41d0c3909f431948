package election

import (
	"cmp"
	"context"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// waiting is what a standby has told of why it does not lead, so that it is told once. It is owned by Run's goroutine.
type waiting struct {
	mode   Mode   // that leaders lead in, and this process would not
	holder string // who is not heard
	// exhausted is the Lease on which no term can begin any more.
	exhausted types.UID
}

// end: it leads.
func (w *waiting) end(name string) {
	*w = waiting{exhausted: w.exhausted}
	otherMode.WithLabelValues(name).Set(0)
	unaccounted.WithLabelValues(name).Set(0)
}

// standsByOther tells when leaders lead in another mode than this process would, and when they do not any more.
func (e *Elector) standsByOther(ctx context.Context, seen lease.Observation) {
	var mode Mode
	if e.isOther(seen.Mode) {
		mode = seen.Mode
	}
	if mode == e.waiting.mode {
		return
	}
	e.waiting.mode = mode
	if mode == "" {
		otherMode.WithLabelValues(e.cfg.Name).Set(0)
		return
	}
	otherMode.WithLabelValues(e.cfg.Name).Set(1)
	e.notify(OtherMode, false, "stands by: leaders lead in mode %s, and its --leader-election-mode is %s. It campaigns when no replica of mode %[1]s takes a lease that is free", mode, e.cfg.Mode)
	klog.FromContext(ctx).Info("Standing by: leaders lead in another mode. This replica campaigns when no replica of that mode takes a lease that is free",
		"leaseMode", mode, "mode", e.cfg.Mode)
}

// unaccountedFor returns since when the holder has not been heard, and when that has been too long. Both are zero if there is no
// holder, if its lease expires soon enough, or if it is known to live. So it is about those who hold for life, and about those whose
// lease lasts far longer than this process's (see believed). They keep the lease until an operator says that they are gone: a holder
// has a right to its lease for as long as the Lease says. The caller holds mu, or is Run's goroutine.
func (e *Elector) unaccountedFor(seen lease.Observation) (heard, due time.Time) {
	holder := seen.Presence()
	switch {
	case seen.Holder() == "", e.identities.ours(seen.Holder()):
		return time.Time{}, time.Time{}
	case !seen.HeldForLife():
		due := seen.Since.Add(believed * e.cfg.LeaseDuration)
		if !seen.Expiry(e.cfg.LeaseDuration).After(due) {
			return time.Time{}, time.Time{}
		}
		return seen.Since, due
	case e.cfg.Detector == nil: // nobody would be heard
		return time.Time{}, time.Time{}
	}
	news, _ := e.peer.latest(Contact(holder.Contact))
	byOthers := holder.Contact == (lease.Contact{}) && e.cfg.Owner != nil // the garbage collector accounts for it
	if news.Sign == Alive || byOthers || news.Since.IsZero() {            // it is not followed yet
		return time.Time{}, time.Time{}
	}
	heard = news.Since
	if heard.Before(seen.TermSince) { // of the holder before, who could not be heard either
		heard = seen.TermSince
	}
	return heard, heard.Add(e.cfg.LeaseDuration)
}

// believed is for how many of this process's lease durations a holder whose own lease lasts longer is taken to live, without a
// renewal.
const believed = 4

// waitsForHolder tells when the holder is not accounted for any more, and when it is again. It returns when to look again.
func (e *Elector) waitsForHolder(ctx context.Context, seen lease.Observation, now time.Time) (again time.Time) {
	heard, due := e.unaccountedFor(seen)
	leader := cmp.Or(seen.Presence().Replica, seen.Holder())
	log := klog.FromContext(ctx).WithValues("leader", leader, "holder", seen.Holder())
	if same := e.waiting.holder == seen.Holder(); !same || due.IsZero() || !seen.HeldForLife() && now.Before(due) {
		if same && e.waiting.holder != "" {
			log.Info("The leader is heard again")
		}
		e.accountFor()
	}
	switch {
	case due.IsZero() || e.waiting.holder != "":
		return time.Time{}
	case now.Before(due):
		return due
	}
	e.waiting.holder = seen.Holder()
	unaccounted.WithLabelValues(e.cfg.Name).Set(1)
	command, silent, holds := e.forget(seen), now.Sub(heard).Round(time.Second), "for life"
	if !seen.HeldForLife() {
		holds = "for " + seen.Expiry(e.cfg.LeaseDuration).Sub(seen.Since).String()
	}
	e.notify(Unaccounted, true, "waits: replica %s holds the lease %s, has not been heard for %v, and nothing proves that its process is dead. If it is gone for good: %s",
		leader, holds, silent, command)
	log.Error(nil, "Waiting: the leader is not heard, its lease does not expire in time, and nothing proves that its process is dead. If it is gone for good, say so",
		"holds", holds, "silent", silent, "command", command)
	return time.Time{}
}

// warnOfLastEpoch tells when no later term can begin on the Lease, once.
func (e *Elector) warnOfLastEpoch(ctx context.Context, seen lease.Observation) {
	if seen.Lease == nil || seen.Epoch() < math.MaxInt32 || seen.Lease.UID == e.waiting.exhausted {
		return
	}
	e.waiting.exhausted = seen.Lease.UID
	command := "kubectl --namespace=" + e.api.Namespace + " delete lease " + e.api.Name
	e.notify(NoEpochLeft, true, "cannot lead: leaseTransitions of the Lease is %d, the last there is, and no later term could be told from an earlier one. This ends the leader's term, if there is one, and begins anew: %s",
		math.MaxInt32, command)
	klog.FromContext(ctx).Error(lease.ErrNoEpochLeft, "No term can begin on this Lease any more: delete it, which ends the leader's term if there is one", "command", command)
}

// accountFor: nobody is waited for of whom nothing is known.
func (e *Elector) accountFor() {
	if e.waiting.holder != "" {
		e.waiting.holder = ""
		unaccounted.WithLabelValues(e.cfg.Name).Set(0)
	}
}

// forget is the command by which an operator says that the holder's process is dead.
func (e *Elector) forget(seen lease.Observation) string {
	kubectl := "kubectl --namespace=" + e.api.Namespace + " delete "
	life, isLease := e.ownerOfHolder(seen)
	switch replica := seen.Presence().Replica; {
	case !seen.HeldForLife():
		return "kubectl --namespace=" + e.api.Namespace + " patch lease " + e.api.Name + ` --type=merge --patch='{"spec":{"holderIdentity":""}}'`
	case isLease && e.cfg.ForgetCommand != "" && replica != "":
		return e.cfg.ForgetCommand + " " + replica
	case isLease:
		return kubectl + "lease " + life.Name
	}
	if owner := lease.TermOwner(seen.Lease); owner != nil {
		return kubectl + strings.ToLower(owner.Kind) + " " + owner.Name
	}
	return kubectl + "lease " + e.api.Name // what it hung on was taken off
}
