package election

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ask writes the wish of this process to succeed the holder that was seen, on that very revision.
func (e *Elector) ask(ctx context.Context, s situation) {
	asked := s.seen.Lease.DeepCopy()
	lease.Wish{Holder: s.seen.Holder(), Replica: e.cfg.Replica, Mode: e.cfg.Mode.Name(), Priority: e.cfg.Priority}.WriteTo(asked)
	written, err := e.api.Update(ctx, asked)
	if err != nil {
		e.memory.wish.tried = s.now
		klog.FromContext(ctx).V(2).Info("Could not ask the leader to make way: trying again", "leader", s.seen.Holder(), "err", err)
		e.watcher.Distrust()
		return
	}
	e.memory.wish.asked = s.now
	e.view.See(written)
}
