package custom

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/test/until"
)

// watcher is the connection of a client that watches. It counts what arrives.
type watcher struct {
	header http.Header
	got    *atomic.Int64
}

func (w watcher) Header() http.Header { return w.header }
func (w watcher) WriteHeader(int)     {}
func (w watcher) Flush()              {}

// CloseNotify is for upstream's handlers, which look for it before they flush.
func (w watcher) CloseNotify() <-chan bool { return nil }
func (w watcher) Write(p []byte) (int, error) {
	w.got.Add(int64(strings.Count(string(p), `"type":"ADDED"`)))
	return len(p), nil
}

// BenchmarkCustomWriteBesideWatchers is what the creation of a custom object takes, with watchers of the same resource,
// of the same content, in so many other logical clusters, or a tenth as many in another namespace of the same one: CPU
// of this process, without etcd's, which is another one, and the median time (I12).
func BenchmarkCustomWriteBesideWatchers(b *testing.B) {
	for _, where := range []string{"clusters", "namespace"} {
		var first [2]float64
		many := 10_000
		if where == "namespace" { // which are dispatched to one by one, as in Kubernetes
			many = 1000
		}
		for _, watchers := range []int{1, many} {
			b.Run(fmt.Sprintf("%s/%d", where, watchers), func(b *testing.B) {
				cpu, median := writeBeside(b, where, watchers)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(cpu, "cpu-µs/write")
				b.ReportMetric(median, "p50-µs/write")
				if watchers == 1 {
					first = [2]float64{cpu, median}
					return
				}
				b.ReportMetric(cpu/first[0], "cpu-of-one's")
				b.ReportMetric(median/first[1], "p50-of-one's")
			})
		}
	}
}

func writeBeside(b *testing.B, where string, watchers int) (cpu, median float64) {
	b.Helper()
	w := newWorld(b)
	ctx, cancel := context.WithCancel(b.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	var here, elsewhere atomic.Int64
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	follow := func(cluster, namespace string, got *atomic.Int64) {
		// another one would end the watches
		if d, _ := w.Definition(ctx, logicalcluster.Name(cluster), resource); d == nil {
			w.define(b, logicalcluster.Name(cluster), widgets(""))
		}
		path := "/clusters/" + cluster + "/apis/example.com/v1/namespaces/" + namespace + "/widgets?watch=true&timeoutSeconds=3600"
		watching.Go(func() {
			w.handler.ServeHTTP(watcher{http.Header{}, got}, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		})
	}
	create := func(cluster, namespace, name string) {
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/clusters/"+cluster+"/apis/example.com/v1/namespaces/"+namespace+"/widgets",
			strings.NewReader(widget(name, "{}")))
		req.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		if w.handler.ServeHTTP(answer, req); answer.Code != http.StatusCreated {
			b.Fatalf("%d %s", answer.Code, answer.Body)
		}
	}
	of := func(n int) (cluster, namespace string) {
		if where == "namespace" {
			return "here", "other"
		}
		return fmt.Sprintf("c%d", n), "default"
	}
	for n := range watchers {
		cluster, namespace := of(n)
		follow(cluster, namespace, &elsewhere)
	}
	follow("here", "default", &here)
	// Each watcher sees an object of its own, so that all watch when it is measured.
	for n := range watchers {
		if cluster, namespace := of(n); n == 0 || where != "namespace" {
			create(cluster, namespace, "first")
		}
	}
	until.So(b, "all watch", func() bool { return elsewhere.Load() >= int64(watchers) })
	for n := range 100 {
		create("here", "default", fmt.Sprintf("warm%d", n))
	}
	until.So(b, "the watcher has seen them", func() bool { return here.Load() >= 100 })
	runtime.GC()
	const writes = 500
	var took []time.Duration
	before := cpuTime()
	for n := range writes {
		began := time.Now()
		create("here", "default", fmt.Sprintf("x%d", n))
		took = append(took, time.Since(began))
	}
	until.So(b, "the watcher has seen them", func() bool { return here.Load() >= 100+writes })
	cpu = float64((cpuTime() - before).Microseconds()) / writes
	if got := elsewhere.Load(); got != int64(watchers) {
		b.Errorf("the others have seen %d objects, want %d", got, watchers)
	}
	slices.Sort(took)
	return cpu, float64(took[writes/2].Microseconds())
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
