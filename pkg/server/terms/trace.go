package terms

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/regent-project/regent/pkg/controllers"
)

// record makes the spans of a takeover, after the fact: one of it all, and one of each phase. The caller holds mu.
func (t *timeline) record(ctx context.Context) {
	tracers := controllers.TracersOf(ctx)
	if tracers == nil {
		return
	}
	at := t.takeover
	began := map[phase]time.Time{
		detectPhase: at.Symptom, breakPhase: at.Decided, acquirePhase: at.Sent,
		cachesPhase: at.Acquired, reconcilePhase: at.Acquired, writePhase: at.Acquired,
	}
	end := at.Acquired
	for p, took := range t.reached {
		if over := began[p].Add(took); over.After(end) {
			end = over
		}
	}
	ctx, whole := tracers.Terms.Start(ctx, "takeover", trace.WithNewRoot(), trace.WithTimestamp(at.Symptom), trace.WithAttributes(
		attribute.String("regent.lease", t.lease), attribute.Int64("regent.epoch", t.epoch), attribute.String("regent.trigger", string(at.Trigger)),
	))
	for p, took := range t.reached {
		_, span := tracers.Terms.Start(ctx, string(p), trace.WithTimestamp(began[p]))
		span.End(trace.WithTimestamp(began[p].Add(took)))
	}
	whole.End(trace.WithTimestamp(end))
}
