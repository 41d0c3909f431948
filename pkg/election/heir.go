package election

import "context"

// couldLead answers a leader that cannot renew: whether this process stands by, reads the Lease with that holder on it, and could
// write it.
func (e *Elector) couldLead(ctx context.Context, holder string) bool {
	if !e.stands.Load() {
		return false
	}
	if err := e.watcher.Read(ctx); err != nil {
		return false
	}
	seen, _ := e.view.Latest()
	return seen.Holder() == holder && e.api.TakesWrites(ctx, seen.Highest)
}
