package election

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
)

// wishAnnotation is what a standby writes on the Lease when it wants to succeed the holder.
//
// The probe would be simpler, and is not safe enough: whoever knows its secret can claim any priority there, and would make every
// leader step down. Whoever may write the Lease can take it anyway.
const wishAnnotation = "regent.dev/wish"

// wish is a standby's wish, as JSON.
type wish struct {
	// Holder is whom it wants to succeed. Other holders ignore the wish.
	Holder string `json:"holder"`
	// Replica is what the standby calls itself, Mode the one in which it would lead.
	Replica  string `json:"replica"`
	Mode     Mode   `json:"mode"`
	Priority int32  `json:"priority"`
}

// wishOn is the wish on lease; the zero wish if there is none.
func wishOn(lease *coordinationv1.Lease) (w wish) {
	if lease == nil {
		return wish{}
	}
	if err := json.Unmarshal([]byte(lease.Annotations[wishAnnotation]), &w); err != nil {
		return wish{}
	}
	return w
}

// withoutWish takes the wish off lease, with the term that it was about.
func withoutWish(lease *coordinationv1.Lease) { delete(lease.Annotations, wishAnnotation) }

// ask writes the wish of this process to succeed the holder that was seen, on that very revision. It reports whether it is there.
func (e *Elector) ask(ctx context.Context, seen observation) bool {
	text, err := json.Marshal(wish{Holder: seen.holder(), Replica: e.cfg.Replica, Mode: e.cfg.Mode, Priority: e.cfg.Priority})
	if err != nil {
		panic(err) // a struct of strings
	}
	lease := seen.lease.DeepCopy() // it has a presence, of the holder's priority
	lease.Annotations[wishAnnotation] = string(text)
	written, err := e.api.update(ctx, lease)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not ask the leader to make way: trying again", "leader", seen.holder(), "err", err)
		e.follower.distrust()
		return false
	}
	e.view.see(written)
	return true
}

// fulfil is why this term ends in view of a wish on the Lease: a replica of a higher priority, that follows this one, wants to lead.
// Nil if it need not.
func (e *Elector) fulfil(term Term, seen observation) error {
	w := wishOn(seen.lease)
	if w.Holder == "" || w.Holder != term.Token().Holder || w.Mode != e.cfg.Mode || w.Priority <= e.cfg.Priority {
		return nil
	}
	if w.Replica == "" || e.checkStandby(w.Replica) != nil {
		return nil
	}
	return because(StepDown, "%w", &request{reason: fmt.Sprintf("replica %q has priority %d, this one %d", w.Replica, w.Priority, e.cfg.Priority), to: w.Replica})
}
