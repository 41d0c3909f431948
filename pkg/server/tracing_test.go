package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/tracing/tracingtest"
)

// traces is a collector.
type traces struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string][]*tracev1.Span // by trace
	whose map[string]string          // attributes of the resource
}

func (c *traces) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range req.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			c.whose[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans[string(span.GetTraceId())] = append(c.spans[string(span.GetTraceId())], span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// has tells whether one trace has spans whose names begin so.
func (c *traces) has(names ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spans := range c.spans {
		missing := 0
		for _, name := range names {
			found := false
			for _, span := range spans {
				found = found || strings.HasPrefix(span.GetName(), name)
			}
			if !found {
				missing++
			}
		}
		if missing == 0 {
			return true
		}
	}
	return false
}

// A trace leads from a request, and from a reconcile, to what it wrote in etcd. A takeover has its phases.
func TestATraceLeadsFromItsCauseToEtcd(t *testing.T) {
	c := &traces{spans: map[string][]*tracev1.Span{}, whose: map[string]string{}}
	cfg := withController(t, config(t, t.TempDir()), nil)
	cfg.Tracing.ConfigFile = tracingtest.Config(t, tracingtest.Serve(t, c), "1000000")
	r := catalogue(t, cfg)
	u := &operator{t, r}
	u.until("root is Ready", u.rootIsReady)
	if _, err := r.adminIn(t, clusters.SystemAdmin).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "traced"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"POST /api/v1/namespaces/{:namespace}/configmaps", "etcdserverpb.KV/Txn"},
		{"reconcile ", "POST /api", "etcdserverpb.KV/Txn"},
		{"takeover", "detect", "break", "acquire", "caches", "first_reconcile", "first_write"},
	} {
		for deadline := time.Now().Add(30 * time.Second); !c.has(want...); {
			if time.Now().After(deadline) {
				c.mu.Lock()
				names := map[string]int{}
				for _, spans := range c.spans {
					for _, span := range spans {
						names[span.GetName()]++
					}
				}
				c.mu.Unlock()
				t.Fatalf("no trace has %q; there are %v", want, names)
			}
			select {
			case <-t.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whose["service.name"] != "regent" || c.whose["regent.shard"] != "root" || c.whose["regent.replica"] != r.server.name {
		t.Errorf("the spans are of %v", c.whose)
	}
}
