package election

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ask writes on the Lease that this process wants to succeed the holder that was seen. It writes on that same revision.
func (r *run) ask(ctx context.Context, s situation) {
	asked := s.seen.Lease.DeepCopy()
	lease.Wish{Holder: s.seen.Holder(), Replica: r.cfg.Replica, Instance: r.cfg.Instance, Mode: r.cfg.Mode.Name(), Priority: r.cfg.Priority}.WriteTo(asked)
	written, err := r.api.Update(ctx, asked)
	if err != nil {
		r.memory.wish.tried = s.now
		klog.FromContext(ctx).V(2).Info("Could not ask the leader to step down: trying again", "leader", s.seen.Holder(), "err", err)
		r.watcher.Distrust()
		return
	}
	r.memory.wish.asked = s.now
	r.view.See(written)
}
