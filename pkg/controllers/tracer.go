package controllers

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/control"
)

// Tracers record what controllers and terms do.
type Tracers struct {
	// Reconciles records some of the reconciles, Terms each takeover.
	Reconciles, Terms trace.Tracer
}

type tracersKey struct{}

// WithTracers returns a context for controllers and terms whose work is recorded. Without it nothing is.
func WithTracers(ctx context.Context, t *Tracers) context.Context {
	ctx = context.WithValue(ctx, tracersKey{}, t)
	if t.Reconciles == nil {
		return ctx
	}
	return control.WithObserver(ctx, t.reconcile)
}

// TracersOf returns what WithTracers has put into ctx, or nil.
func TracersOf(ctx context.Context) *Tracers {
	t, _ := ctx.Value(tracersKey{}).(*Tracers)
	return t
}

// reconcile implements control.Observer with a span of each reconcile.
func (t *Tracers) reconcile(ctx context.Context, of control.Reconcile) (context.Context, func(error)) {
	ctx, span := t.Reconciles.Start(ctx, "reconcile "+of.Controller, trace.WithNewRoot())
	if span.IsRecording() {
		span.SetAttributes(describe(of)...)
	}
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, "it will be tried again")
		}
		span.End() // not deferred itself: it would recover a panic
	}
}

// describe says what is reconciled, and why.
func describe(of control.Reconcile) []attribute.KeyValue {
	about := []attribute.KeyValue{
		attribute.String("regent.controller", of.Controller), attribute.String("regent.cause", string(of.Cause)), attribute.Int("regent.attempt", of.Attempt),
	}
	if key, ok := of.Key.(clusters.Key); ok {
		return append(about, attribute.String("regent.cluster", key.Cluster.String()), attribute.String("regent.namespace", key.Namespace),
			attribute.String("regent.name", key.Name))
	}
	return append(about, attribute.String("regent.key", fmt.Sprint(of.Key)))
}
