// Package tracing sends spans to the collector of --tracing-config-file: of requests down to etcd's transactions, of
// takeovers, and of reconciles. A collector that is away or slow costs spans and nothing else.
package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"
)

const (
	// defaultEndpoint is where a collector on the same machine listens.
	defaultEndpoint = "localhost:4317"
	// FlushTimeout is how long Close lets the collector take the last spans.
	FlushTimeout = 2 * time.Second
	perMillion   = 1_000_000
)

// Provider makes the spans of one server. A nil *Provider makes none.
type Provider struct {
	sampled, all trace.TracerProvider
	spans        sdktrace.SpanProcessor
	conn         *grpc.ClientConn
}

// New returns a Provider for a TracingConfiguration, or nil if file is empty. The attributes say whose spans these are.
// New does not wait for the collector.
//
// Upstream's provider is not used: its end waits for a collector that hangs, for a minute and more.
func New(ctx context.Context, file string, attributes ...attribute.KeyValue) (*Provider, error) {
	if file == "" {
		return nil, nil
	}
	config, err := options.ReadTracingConfiguration(file)
	if err != nil {
		return nil, err
	}
	if errs := tracingapi.ValidateTracingConfiguration(config, utilfeature.DefaultFeatureGate, nil); len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errs.ToAggregate())
	}
	endpoint := defaultEndpoint
	if config.Endpoint != nil {
		endpoint = *config.Endpoint
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("%s: the collector's endpoint %q: %w", file, endpoint, err)
	}
	// No retries: they would keep spans of minutes ago, for which those of now are dropped.
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(conn),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}))
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	reportLosses(klog.FromContext(ctx))
	p := &Provider{spans: sdktrace.NewBatchSpanProcessor(exporter), conn: conn}
	whose := resource.NewSchemaless(attributes...)
	p.sampled = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans), sdktrace.WithResource(whose),
		sdktrace.WithSampler(sdktrace.ParentBased(ratio(config.SamplingRatePerMillion))))
	p.all = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans), sdktrace.WithResource(whose), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	return p, nil
}

// ratio returns what decides whether a new trace is recorded.
func ratio(samples *int32) sdktrace.Sampler {
	if samples == nil || *samples == 0 {
		return sdktrace.NeverSample()
	}
	return sdktrace.TraceIDRatioBased(float64(*samples) / perMillion)
}

// Sampled records as many traces as the configuration says, and those that a caller has begun.
func (p *Provider) Sampled() trace.TracerProvider {
	if p == nil {
		return nil
	}
	return p.sampled
}

// All records all traces. It is for what is rare, such as takeovers.
func (p *Provider) All() trace.TracerProvider {
	if p == nil {
		return nil
	}
	return p.all
}

// ForRequests is Sampled for the API server, whose end does not end the Provider: what ends after it has spans, too.
func (p *Provider) ForRequests() tracing.TracerProvider {
	if p == nil {
		return tracing.NewNoopTracerProvider()
	}
	return sharedProvider{p.sampled}
}

type sharedProvider struct{ trace.TracerProvider }

// Shutdown does nothing.
func (sharedProvider) Shutdown(context.Context) error { return nil }

// Close sends the spans that have ended, and drops what the collector has not taken within FlushTimeout. When it
// returns, nothing of the Provider runs any more. Call it once.
func (p *Provider) Close() {
	if p == nil {
		return
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		_ = p.spans.Shutdown(context.Background()) // its error is reported like any other loss
	}()
	select {
	case <-flushed:
	case <-time.After(FlushTimeout):
		_ = p.conn.Close() // so that no call to the collector can take longer
		<-flushed
	}
	_ = p.conn.Close()
}

var _ tracing.TracerProvider = sharedProvider{}
