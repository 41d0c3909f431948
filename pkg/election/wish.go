package election

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ask writes the wish of this process to succeed the holder that was seen, on that very revision. It reports whether it is there.
func (e *Elector) ask(ctx context.Context, seen lease.Observation) bool {
	asked := seen.Lease.DeepCopy()
	lease.Wish{Holder: seen.Holder(), Replica: e.cfg.Replica, Mode: e.cfg.Mode, Priority: e.cfg.Priority}.WriteTo(asked)
	written, err := e.api.Update(ctx, asked)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not ask the leader to make way: trying again", "leader", seen.Holder(), "err", err)
		e.watcher.Distrust()
		return false
	}
	e.view.See(written)
	return true
}

// fulfil is why this term ends in view of a wish on the Lease: a replica of a higher priority, that follows this one, wants to lead.
// Nil if it need not.
func (e *Elector) fulfil(term Term, seen lease.Observation) error {
	w := seen.Wish()
	if w.Holder == "" || w.Holder != term.Token().Holder || w.Mode != e.cfg.Mode || w.Priority <= e.cfg.Priority {
		return nil
	}
	if w.Replica == "" || e.checkStandby(w.Replica) != nil {
		return nil
	}
	return because(StepDown, "%w", &request{reason: fmt.Sprintf("replica %q has priority %d, this one %d", w.Replica, w.Priority, e.cfg.Priority), to: w.Replica})
}
