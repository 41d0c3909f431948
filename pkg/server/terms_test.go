package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/test/etcdtest"
)

var (
	termsFlag   = flag.Int("terms", 25, "terms in TestTermsLeaveNothingBehind")
	heapsFlag   = flag.String("heaps", "", "a directory for a heap profile of each time that a footprint is taken")
	objectsFlag = flag.Int("objects", 0, "objects in TestTermsLeaveNothingBehind; 0: five for each term, at most 5,000")
)

// herd is a number of controllers that reconcile every ConfigMap, and do nothing.
type herd struct {
	mu        sync.Mutex
	loops     map[string]*loop.Loop[clusters.Key] // of the latest term
	informer  clusters.Cache[*metav1.PartialObjectMetadata]
	epoch     atomic.Int64
	reconcile atomic.Int64 // controllers that have begun to, in this term
}

func (h *herd) registry(t *testing.T, n int) *controllers.Registry {
	t.Helper()
	var set []controllers.Descriptor
	for i := range n {
		name := fmt.Sprintf("herd-%d", i)
		set = append(set, controllers.Descriptor{Name: name, New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
			return h.construct(name, deps), nil
		}})
	}
	registry, err := controllers.NewRegistry(set...)
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

func (h *herd) construct(name string, deps controllers.Deps) controllers.Controller {
	h.mu.Lock()
	defer h.mu.Unlock()
	if deps.Token.Epoch != h.epoch.Load() {
		h.epoch.Store(deps.Token.Epoch)
		h.reconcile.Store(0)
	}
	var first sync.Once
	l := loop.New(clusters.Range{}, name, 2, func(context.Context, clusters.Key) error {
		first.Do(func() { h.reconcile.Add(1) })
		return nil
	})
	h.informer = deps.Informers.Metadata[corev1.SchemeGroupVersion.WithResource("configmaps")]
	loop.Watch(l, h.informer, func(m *metav1.PartialObjectMetadata) []clusters.Key { return []clusters.Key{clusters.KeyOf(m)} })
	h.loops[name] = l
	return l
}

// idle reports whether all controllers of the term have reconciled so many objects, and nothing is left.
func (h *herd) idle(objects int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.loops {
		if health := l.Report(); health.Pending > 0 || int(health.Returned) < objects {
			return false
		}
	}
	return true
}

// footprint is what a process holds.
type footprint struct {
	goroutines, handlers, descriptors int
	heap                              uint64
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d handlers, %d open files and connections, %.1f MiB heap", f.goroutines, f.handlers, f.descriptors, float64(f.heap)/(1<<20))
}

func (h *herd) footprint(t *testing.T) footprint {
	t.Helper()
	least := leastFootprint(t)
	least.handlers = h.informer.Handlers()
	return least
}

// leastFootprint measures for some seconds, and returns the least: requests and timers come and go.
func leastFootprint(t *testing.T) footprint {
	t.Helper()
	least := footprint{goroutines: 1 << 30, descriptors: 1 << 30, heap: 1 << 60}
	for range 14 {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.GC() // what the first has finalized
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		least.goroutines, least.descriptors = min(least.goroutines, runtime.NumGoroutine()), min(least.descriptors, len(open))
		least.heap = min(least.heap, mem.HeapAlloc)
		time.Sleep(250 * time.Millisecond) // upstream's timers of 3 s are among what comes and goes
	}
	saveHeap(t)
	return least
}

// saveHeap saves a heap profile, if somebody wants it.
func saveHeap(t *testing.T) {
	t.Helper()
	if *heapsFlag == "" {
		return
	}
	file, err := os.Create(filepath.Join(*heapsFlag, time.Now().Format("150405.000")+".pprof"))
	if err == nil {
		err = errors.Join(pprof.Lookup("heap").WriteTo(file, 0), file.Close())
	}
	if err != nil {
		t.Errorf("cannot save a heap profile: %v", err)
	}
}

// I5: a replica leads in its n-th term as in its tenth, with nothing more than then. (-terms=1000 is the long form.)
func TestTermsLeaveNothingBehind(t *testing.T) {
	const size, warm = 50, 10
	terms := *termsFlag
	objects := *objectsFlag
	if objects == 0 {
		objects = min(5*terms, 5000)
	}
	h := &herd{loops: map[string]*loop.Loop[clusters.Key]{}}
	cfg := config(t, t.TempDir())
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcdtest.Start(t)
	cfg.Registry = h.registry(t, size)
	cfg.EnableLeaderElection = true
	cfg.Election.LeaseDuration, cfg.Election.RenewDeadline, cfg.Election.RetryPeriod = 10*time.Second, 8*time.Second, 20*time.Millisecond
	cfg.Election.DrainTimeout = 5 * time.Second
	r := startReplica(t, cfg)
	admin, endpoints := r.adminIn(t, clusters.SystemAdmin), r.admin(t)
	until := func(what string, so func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("in vain for a minute: %s", what)
			}
		}
	}
	var creating sync.WaitGroup
	for c := range 16 {
		creating.Go(func() {
			for i := c; i < objects; i += 16 {
				if _, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i)},
				}, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()

	var before footprint
	began := time.Now()
	for n := 1; ; n++ {
		until(fmt.Sprintf("all controllers reconcile in term %d", n), func() bool { return h.epoch.Load() >= int64(n) && h.reconcile.Load() == size })
		if n == warm || n%250 == 0 || n == terms {
			until("all is reconciled", func() bool { return h.idle(objects) })
			now := h.footprint(t)
			t.Logf("%4d terms in %v, %d controllers on %d objects: %v", n, time.Since(began).Round(time.Second), size, objects, now)
			if n == terms {
				check(t, before, now, min(terms-warm, termsKept)*changesOfATerm)
				break
			}
			if n == warm {
				before = now
			}
		}
		if err := endpoints.Post().AbsPath(routing.StepDownPath).Do(t.Context()).Error(); err != nil {
			t.Fatalf("step down from term %d: %v", n, err)
		}
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// Watch caches keep every change of the last 75 s, those of the Lease and of the history too. So what the first terms
// have is allowed for: later ones push it out.
const (
	changesOfATerm = 64 << 10 // bytes
	termsKept      = 100
)

// check allows the heap to grow by some bytes, beside a little.
func check(t *testing.T, before, after footprint, changes int) {
	t.Helper()
	const fewer = 5 // connections that are being opened or closed, and their goroutines
	if after.goroutines > before.goroutines+fewer || after.descriptors > before.descriptors+fewer || after.handlers != before.handlers {
		t.Errorf("%v, before %v", after, before)
	}
	allowed := float64(before.heap)*1.05 + float64(changes)
	if float64(after.heap) > allowed {
		t.Errorf("the heap has grown by %.1f%%", 100*(float64(after.heap)/float64(before.heap)-1))
	}
}
