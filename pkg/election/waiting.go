package election

import (
	"context"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// waiting is what a standby has told of why it does not lead, so that it is told once. It is owned by Run's goroutine.
type waiting struct {
	mode   Mode   // that leaders lead in, and this process would not
	holder string // who is not heard
}

// end: it leads.
func (w *waiting) end(name string) {
	*w = waiting{}
	otherMode.WithLabelValues(name).Set(0)
	unaccounted.WithLabelValues(name).Set(0)
}

// standsByOther tells when leaders lead in another mode than this process would, and when they do not any more.
func (e *Elector) standsByOther(ctx context.Context, seen observation) {
	var mode Mode
	if e.isOther(seen.mode) {
		mode = seen.mode
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

// waitsForOwner tells when the holder, which holds for life, has not been heard for a lease duration, and when it is again.
// Nothing but its owner's deletion ends that wait, so an operator has to know. It returns when to look again.
func (e *Elector) waitsForOwner(ctx context.Context, seen observation, news News, now time.Time) (again time.Time) {
	holder := presenceOf(seen.lease)
	if news.Sign == Alive || holder.Contact == (Contact{}) || e.cfg.Detector == nil {
		if e.waiting.holder == seen.holder() {
			klog.FromContext(ctx).Info("The leader is heard again", "leader", holder.Replica, "holder", holder.Holder)
		}
		e.accountFor()
		return time.Time{}
	}
	if news.Since.IsZero() { // not followed yet
		return time.Time{}
	}
	if due := news.Since.Add(e.cfg.LeaseDuration); now.Before(due) {
		return due
	}
	if e.waiting.holder == seen.holder() {
		return time.Time{}
	}
	e.waiting.holder = seen.holder()
	unaccounted.WithLabelValues(e.cfg.Name).Set(1)
	command := e.forget(seen)
	e.notify(Unaccounted, true, "waits: replica %s holds the lease for life, has not been heard for %v, and nothing proves that its process is dead. If it is gone for good: %s",
		holder.Replica, now.Sub(news.Since).Round(time.Second), command)
	klog.FromContext(ctx).Error(nil, "Waiting: the leader holds the lease for life, is not heard, and nothing proves that its process is dead. If it is gone for good, say so",
		"leader", holder.Replica, "holder", holder.Holder, "silent", now.Sub(news.Since).Round(time.Second), "command", command)
	return time.Time{}
}

// accountFor: nobody is waited for of whom nothing is known.
func (e *Elector) accountFor() {
	if e.waiting.holder != "" {
		e.waiting.holder = ""
		unaccounted.WithLabelValues(e.cfg.Name).Set(0)
	}
}

// forget is the command by which an operator says that the holder's process is dead.
func (e *Elector) forget(seen observation) string {
	kubectl := "kubectl --namespace=" + e.api.namespace + " delete "
	life, isLease := e.ownerOfHolder(seen)
	switch replica := presenceOf(seen.lease).Replica; {
	case isLease && e.cfg.ForgetCommand != "" && replica != "":
		return e.cfg.ForgetCommand + " " + replica
	case isLease:
		return kubectl + "lease " + life.name
	}
	for _, owner := range seen.lease.OwnerReferences {
		if owner.UID == ownerOf(seen.lease) {
			return kubectl + strings.ToLower(owner.Kind) + " " + owner.Name
		}
	}
	return kubectl + "lease " + e.api.name // what it hung on was taken off
}
