package election

import "context"

// couldLead answers a leader that cannot renew: it reports whether this process stands by, reads the Lease with that
// holder on it, and could write it.
func (r *run) couldLead(ctx context.Context, holder string) bool {
	if !r.standsBy.Load() {
		return false
	}
	if err := r.watcher.Read(ctx); err != nil {
		return false
	}
	seen, _ := r.view.Latest()
	return seen.Holder() == holder && r.api.TakesWrites(ctx, seen.Highest)
}
