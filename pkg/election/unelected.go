package election

import "context"

// withoutElection is the mode of a process that is no candidate (NewUnelected). It leads whenever nobody holds the lease.
type withoutElection struct{ plain }

func (withoutElection) enter(context.Context, *heldLease) (claim, error) { return unelected{}, nil }

// unelected is the claim of such a process. It consists of nothing: the term lasts while nobody holds the lease.
type unelected struct{}

func (unelected) term() Term                           { return Term{} }
func (unelected) grounds() grounds                     { return grounds{} }
func (unelected) faltered() <-chan struct{}            { return nil }
func (unelected) lost() <-chan struct{}                { return nil }
func (unelected) end(error)                            {}
func (unelected) stop()                                {}
func (unelected) release(context.Context, error) error { return nil }
