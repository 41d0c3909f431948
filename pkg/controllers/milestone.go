package controllers

import "context"

// Milestone is a moment at the beginning of a term that is measured.
type Milestone string

const (
	// Working: a controller has warm caches and its event handlers.
	Working Milestone = "working"
	// Reconciled: a reconcile has returned.
	Reconciled Milestone = "reconciled"
)

type milestoneKey struct{}

// WithMilestones has reached called with what controllers reach that are run in the returned context: from any goroutine,
// and again for each of them.
func WithMilestones(ctx context.Context, reached func(Milestone)) context.Context {
	return context.WithValue(ctx, milestoneKey{}, reached)
}

// Reached tells whoever measures in ctx. Package loop does it for its controllers.
func Reached(ctx context.Context, m Milestone) {
	if reached, ok := ctx.Value(milestoneKey{}).(func(Milestone)); ok {
		reached(m)
	}
}
