package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

// many returns an informer of n objects, each in a cluster of its own: "c0" and so on.
func many(t *testing.T, n int) (*controllertest.Source[*corev1.ConfigMap], *clusters.Informer[*corev1.ConfigMap]) {
	t.Helper()
	objs := make([]*corev1.ConfigMap, n)
	for i := range objs {
		objs[i] = configMap(fmt.Sprintf("c%d", i), "x")
	}
	source := controllertest.NewSource(objs...)
	return source, controllertest.Informer(t, source, nil)
}

// slow is a record whose reconciles take time.
type slow struct {
	record[clusters.Key]
	takes time.Duration
}

func (s *slow) reconcile(ctx context.Context, k clusters.Key) error {
	time.Sleep(s.takes)
	return s.record.reconcile(ctx, k)
}

// However much the sweep has found, what happens now is reconciled by the next worker that is free, and some always are.
func TestWhatHappensNowDoesNotWaitForTheSweepI13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, workers = 5000, 8
		source, inf := many(t, objects)
		done := slow{takes: time.Second}
		l := loop.New("test", workers, done.reconcile)
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		time.Sleep(time.Minute)
		done.take()
		for n := range 10 {
			source.Set(configMap("new", fmt.Sprint(n)))
			time.Sleep(1500 * time.Millisecond)
			reconciled := done.take()
			if !slices.Contains(reconciled, clusters.KeyOf(configMap("new", fmt.Sprint(n)))) {
				t.Errorf("a new object was not among the first %d that were reconciled", len(reconciled))
			}
			if len(reconciled) > 2*workers/4+1 {
				t.Errorf("%d keys were reconciled in two rounds: the sweep has taken more than its share of the workers", len(reconciled))
			}
		}
		if h := l.Report(); !h.Sweep.Running || h.Sweep.Pending == 0 || h.Sweep.Pending > h.Pending {
			t.Errorf("while the sweep goes on, it is reported as %+v", h)
		}
		time.Sleep(objects * time.Second)
		if h := l.Report(); h.Sweep.Running || h.Pending != 0 || h.Sweep.Returned == 0 || h.Sweep.Returned >= h.Returned {
			t.Errorf("after the sweep, it is reported as %+v", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSweepEndsHoweverMuchHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 300
		_, inf := many(t, objects)
		var mu sync.Mutex
		seen := map[clusters.Key]bool{}
		var l *loop.Loop[clusters.Key]
		busy := 0
		l = loop.New("test", 4, func(_ context.Context, k clusters.Key) error {
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if k.Name == "busy" { // each makes another: the queue never runs out of fresh keys
				busy++
				l.Add(clusters.Key{Name: "busy", Cluster: k.Cluster})
			} else {
				seen[k] = true
			}
			return nil
		})
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		for n := range 100 {
			l.Add(clusters.Key{Name: "busy", Cluster: clusters.KeyOf(configMap(fmt.Sprint("b", n), "")).Cluster})
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(seen) != objects || busy < objects {
			t.Errorf("%d of %d keys of the sweep were reconciled beside %d others", len(seen), objects, busy)
		}
		mu.Unlock()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSweepQueuesOnlyKeysThatNeedSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, inf := many(t, 200)
		var done record[clusters.Key]
		l := loop.New("test", 2, done.reconcile)
		l.Needs(func(k clusters.Key) bool { return k.Cluster == "c7" || k.Cluster == "c150" })
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		got := done.take()
		slices.SortFunc(got, func(a, b clusters.Key) int { return len(a.Cluster) - len(b.Cluster) })
		if len(got) != 2 || got[0].Cluster != "c7" || got[1].Cluster != "c150" {
			t.Errorf("the sweep queued %v", got)
		}
		source.Set(configMap("c8", "x"))
		if got := done.take(); len(got) != 1 || got[0].Cluster != "c8" {
			t.Errorf("a change queued %v: Needs is for the sweep only", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What has changed while nobody led, and just before, is as urgent as what changes now. The sweep would find it late.
func TestTheLastChangesBeforeATermAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, inf := many(t, 5000)
		source.Set(configMap("new", "created"))
		source.Delete(clusters.KeyOf(configMap("c77", "x")))
		synctest.Wait()
		done := slow{takes: time.Second}
		l := loop.New("test", 1, done.reconcile)
		l.Needs(func(k clusters.Key) bool { return k.Cluster == "new" || k.Cluster == "c77" || k.Cluster == "c1" })
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		time.Sleep(2500 * time.Millisecond)
		got := done.take()
		slices.SortFunc(got, func(a, b clusters.Key) int { return len(a.Cluster) - len(b.Cluster) })
		if len(got) != 2 || got[0].Cluster == "c1" || got[1].Cluster == "c1" {
			t.Errorf("reconciled first: %v, want what was created and deleted last", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A key that fails in the sweep comes back into the sweep's lane: a hundred thousand of them would otherwise be in everybody's way.
func TestARetryStaysInItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, inf := many(t, 3000)
		ctx := klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true))))
		var done record[clusters.Key]
		l := loop.New("test", 4, func(ctx context.Context, k clusters.Key) error {
			if k.Cluster != "new" {
				time.Sleep(time.Second)
				return errors.New("still broken")
			}
			return done.reconcile(ctx, k)
		})
		l.Needs(func(k clusters.Key) bool { return k.Cluster[len(k.Cluster)-1] == '1' }) // a few hundred
		loop.Watch(l, inf, keys)
		stop := start(ctx, l)
		time.Sleep(time.Hour)
		for range 5 {
			l.Add(clusters.Key{Cluster: "new"})
			time.Sleep(1100 * time.Millisecond)
			if got := done.take(); len(got) != 1 {
				t.Errorf("a new key was reconciled %d times, want once: retries are ahead of it", len(got))
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestALongSweepIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		_, inf := many(t, 2000)
		done := slow{takes: time.Second}
		l := loop.New("test", 4, done.reconcile)
		l.Needs(func(k clusters.Key) bool { return k.Cluster == "c7" || k.Cluster == "c8" })
		loop.Watch(l, inf, keys)
		stop := start(klog.NewContext(t.Context(), logger), l)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
		if len(log) != 1 || fmt.Sprint(log[0].ParameterKVList) == "" {
			t.Fatalf("%d log lines, want one", len(log))
		}
		if got := fmt.Sprint(log[0].ParameterKVList...); got != fmt.Sprint("objects", int64(2000), "keys", int64(2), "took", 2*time.Second) {
			t.Errorf("logged %s", got)
		}
	})
}
