package loop

import (
	"context"
	"errors"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

func TestASpanTellsWhyAKeyIsReconciled(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	fails := true
	l := New("mends", 1, func(context.Context, clusters.Key) error {
		if fails {
			return errors.New("not yet")
		}
		return nil
	})
	key := clusters.Key{Cluster: "aa", Namespace: "n", Name: "x"}
	ctx := controllers.WithTracers(t.Context(), &controllers.Tracers{Reconciles: provider.Tracer("t")})
	failures := 0
	reconcile := l.recorded(ctx, func(clusters.Key) int { return failures })
	if err := reconcile(ctx, key); err == nil {
		t.Error("the reconcile's error is kept back")
	}
	fails, failures = false, 1
	if err := reconcile(ctx, key); err != nil {
		t.Error(err)
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans", len(ended))
	}
	for i, want := range []map[string]string{
		{"regent.controller": "mends", "regent.cause": "change", "regent.attempt": "1", "regent.cluster": "aa", "regent.namespace": "n", "regent.name": "x"},
		{"regent.controller": "mends", "regent.cause": "retry", "regent.attempt": "2", "regent.cluster": "aa", "regent.namespace": "n", "regent.name": "x"},
	} {
		got := map[string]string{}
		for _, a := range ended[i].Attributes() {
			got[string(a.Key)] = a.Value.String()
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("span %d has %s %q, want %q", i, k, got[k], v)
			}
		}
	}
	if len(ended[0].Events()) != 1 || len(ended[1].Events()) != 0 {
		t.Errorf("errors: %v, then %v", ended[0].Events(), ended[1].Events())
	}
}

func TestAReconcileThatNobodyRecordsCostsNothing(t *testing.T) {
	l := New("quiet", 1, func(context.Context, clusters.Key) error { return nil })
	ctx := t.Context()
	reconcile := l.recorded(ctx, func(clusters.Key) int { t.Error("asked for failures"); return 0 })
	if allocations := testing.AllocsPerRun(100, func() { _ = reconcile(ctx, clusters.Key{Name: "x"}) }); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
