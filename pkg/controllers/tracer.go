package controllers

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// Tracers record what controllers and terms do.
type Tracers struct {
	// Reconciles records some of the reconciles, Terms each takeover.
	Reconciles, Terms trace.Tracer
}

type tracersKey struct{}

// WithTracers returns a context for controllers and terms whose work is recorded. Without it nothing is.
func WithTracers(ctx context.Context, t *Tracers) context.Context {
	return context.WithValue(ctx, tracersKey{}, t)
}

// TracersOf returns what WithTracers has put into ctx, or nil.
func TracersOf(ctx context.Context) *Tracers {
	t, _ := ctx.Value(tracersKey{}).(*Tracers)
	return t
}
