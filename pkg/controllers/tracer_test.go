package controllers_test

import (
	"errors"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/control"
)

func TestASpanTellsWhyAKeyIsReconciled(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx := controllers.WithTracers(t.Context(), &controllers.Tracers{Reconciles: provider.Tracer("t")})
	observe := control.ObserverOf(ctx)
	key := clusters.Key{Cluster: "aa", Namespace: "n", Name: "x"}
	_, done := observe(ctx, control.Reconcile{Controller: "mends", Key: key, Cause: control.Change, Attempt: 1})
	done(errors.New("not yet"))
	_, done = observe(ctx, control.Reconcile{Controller: "mends", Key: key, Cause: control.Retry, Attempt: 2})
	done(nil)
	_, done = observe(ctx, control.Reconcile{Controller: "counts", Key: 7, Cause: control.Swept, Attempt: 1})
	done(nil)
	ended := spans.Ended()
	if len(ended) != 3 {
		t.Fatalf("%d spans", len(ended))
	}
	for i, want := range []map[string]string{
		{"regent.controller": "mends", "regent.cause": "change", "regent.attempt": "1", "regent.cluster": "aa", "regent.namespace": "n", "regent.name": "x"},
		{"regent.controller": "mends", "regent.cause": "retry", "regent.attempt": "2", "regent.cluster": "aa", "regent.namespace": "n", "regent.name": "x"},
		{"regent.controller": "counts", "regent.cause": "sweep", "regent.attempt": "1", "regent.key": "7"},
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
		if name := "reconcile " + want["regent.controller"]; ended[i].Name() != name {
			t.Errorf("span %d is %q, want %q", i, ended[i].Name(), name)
		}
	}
	if len(ended[0].Events()) != 1 || len(ended[1].Events()) != 0 {
		t.Errorf("errors: %v, then %v", ended[0].Events(), ended[1].Events())
	}
}

// A span ends also if the reconcile panics, and leaves the panic to the loop.
func TestASpanLeavesAPanicAlone(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx := controllers.WithTracers(t.Context(), &controllers.Tracers{Reconciles: provider.Tracer("t")})
	recovered := func() (value any) {
		defer func() { value = recover() }()
		_, done := control.ObserverOf(ctx)(ctx, control.Reconcile{})
		defer func() { done(nil) }()
		panic("boom")
	}()
	if recovered != "boom" || len(spans.Ended()) != 1 {
		t.Errorf("recovered %v, %d spans", recovered, len(spans.Ended()))
	}
}

func TestTermsAloneMayBeTraced(t *testing.T) {
	tracers := &controllers.Tracers{Terms: sdktrace.NewTracerProvider().Tracer("t")}
	ctx := controllers.WithTracers(t.Context(), tracers)
	if controllers.TracersOf(ctx) != tracers || control.ObserverOf(ctx) != nil {
		t.Error("reconciles are observed without a tracer")
	}
}
