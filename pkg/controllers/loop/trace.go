package loop

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// The causes of a reconcile, as its span tells them.
const (
	causeChange = "change" // something has just happened
	causeSweep  = "sweep"  // the sweep has found the key
	causeRetry  = "retry"  // the reconcile before failed
)

// recorded returns a function that calls reconcile and, if ctx has a tracer, records a span of it. failures tells how often the key's
// reconcile has failed in succession.
func (l *Loop[K]) recorded(ctx context.Context, failures func(K) int) func(context.Context, K) error {
	tracers := controllers.TracersOf(ctx)
	if tracers == nil {
		return l.reconcile
	}
	name := "reconcile " + l.name
	return func(ctx context.Context, k K) error {
		ctx, span := tracers.Reconciles.Start(ctx, name, trace.WithNewRoot())
		defer func() { span.End() }() // called by a function of ours, because End would recover a panic
		if span.IsRecording() {
			span.SetAttributes(l.describe(k, failures(k))...)
		}
		err := l.reconcile(ctx, k)
		if err != nil && ctx.Err() == nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, "it will be tried again")
		}
		return err
	}
}

// describe says what is reconciled, and why.
func (l *Loop[K]) describe(k K, failures int) []attribute.KeyValue {
	cause := causeChange
	switch {
	case failures > 0:
		cause = causeRetry
	case l.lanes.of(k) == swept:
		cause = causeSweep
	}
	about := []attribute.KeyValue{
		attribute.String("regent.controller", l.name), attribute.String("regent.cause", cause), attribute.Int("regent.attempt", failures+1),
	}
	if key, ok := any(k).(clusters.Key); ok {
		return append(about, attribute.String("regent.cluster", key.Cluster.String()), attribute.String("regent.namespace", key.Namespace),
			attribute.String("regent.name", key.Name))
	}
	return append(about, attribute.String("regent.key", fmt.Sprint(k)))
}
