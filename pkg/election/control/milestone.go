package control

import "context"

// Milestone is a moment at the beginning of a term that is measured.
type Milestone string

const (
	// Working: a controller has warm caches and has registered its event handlers.
	Working Milestone = "working"
	// Reconciled: a reconcile has returned.
	Reconciled Milestone = "reconciled"
)

type milestoneKey struct{}

// WithMilestones returns a context for controllers. reached is called with each milestone that one of them reaches, on
// any goroutine, and again for each controller.
func WithMilestones(ctx context.Context, reached func(Milestone)) context.Context {
	return context.WithValue(ctx, milestoneKey{}, reached)
}

// Reached reports a milestone to the function that WithMilestones has put into ctx, if any. Package loop calls it for
// its controllers.
func Reached(ctx context.Context, m Milestone) {
	if reached, ok := ctx.Value(milestoneKey{}).(func(Milestone)); ok {
		reached(m)
	}
}
