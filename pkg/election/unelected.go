package election

import "context"

// withoutElection is the mode of a process that is no candidate (NewUnelected). It leads whenever nobody holds the
// lease, or whoever does is certainly dead.
type withoutElection struct{ plain }

func (withoutElection) enter(_ context.Context, h *heldLease) (claim, error) {
	switch h.takeover.Trigger {
	case TriggerDeath, TriggerOwnerDeleted:
		return unelected{dead: h.basis.Holder()}, nil
	}
	return unelected{}, nil
}

// unelected is the claim of such a process. It consists of nothing: the term lasts while nobody holds the lease.
type unelected struct {
	// dead is a holder that is certainly dead, and stays on the Lease, because this process never writes it.
	dead string
}

func (unelected) term() Term                           { return Term{} }
func (u unelected) grounds() grounds                   { return grounds{dead: u.dead} }
func (unelected) faltered() <-chan struct{}            { return nil }
func (unelected) loss() <-chan struct{}                { return nil }
func (unelected) end(error)                            {}
func (unelected) stop()                                {}
func (unelected) release(context.Context, error) error { return nil }
