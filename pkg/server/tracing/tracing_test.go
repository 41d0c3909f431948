package tracing

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/server/tracing/tracingtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// collecting is a collector that counts spans, or hangs until its callers go.
type collecting struct {
	collector.UnimplementedTraceServiceServer
	hangs bool

	mu    sync.Mutex
	spans map[string]int // by name and shard
}

func (c *collecting) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if c.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range req.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans[span.GetName()+" of "+of.GetResource().GetAttributes()[0].GetValue().GetStringValue()]++
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// start returns a Provider for a collector at the address.
func start(t *testing.T, address, rate string) *Provider {
	t.Helper()
	p, err := New(t.Context(), tracingtest.Config(t, address, rate), attribute.String("regent.shard", "a"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheLastSpansReachTheCollector(t *testing.T) {
	c := &collecting{spans: map[string]int{}}
	p := start(t, tracingtest.Serve(t, c), "0")
	_, rare := p.All().Tracer("t").Start(t.Context(), "rare")
	rare.End()
	_, often := p.Sampled().Tracer("t").Start(t.Context(), "often")
	often.End()
	p.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) != 1 || c.spans["rare of a"] != 1 {
		t.Errorf("the collector has %v", c.spans)
	}
}

// Spans are lost if the collector hangs or is away, and nothing waits for it for longer than FlushTimeout. goleak sees
// what stays.
func TestACollectorThatDoesNotAnswerHoldsNothingUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := listener.Addr().String()
	_ = listener.Close()
	for name, address := range map[string]string{"hangs": tracingtest.Serve(t, &collecting{hangs: true}), "away": away} {
		t.Run(name, func(t *testing.T) {
			p := start(t, address, "1000000")
			began := time.Now()
			for range 5000 { // more than are kept
				_, span := p.Sampled().Tracer("t").Start(t.Context(), "lost")
				span.End()
			}
			if took := time.Since(began); took > FlushTimeout {
				t.Errorf("making spans took %v", took)
			}
			began = time.Now()
			p.Close()
			if took := time.Since(began); took > FlushTimeout+3*time.Second {
				t.Errorf("the end took %v", took)
			}
		})
	}
}

func TestWithoutAFileNothingIsRecorded(t *testing.T) {
	p, err := New(t.Context(), "")
	if p != nil || err != nil {
		t.Fatalf("got %v, %v", p, err)
	}
	_, span := p.ForRequests().Tracer("t").Start(t.Context(), "none")
	if span.IsRecording() || p.Sampled() != nil || p.All() != nil {
		t.Error("spans are recorded")
	}
	p.Close()
}

// The file that docs/OPERATIONS.md shows is read as it stands.
func TestTheDocumentedFileIsSound(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n## Tracing\n")
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("no file in docs/OPERATIONS.md")
	}
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}
