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
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/regent-project/regent/pkg/election/control/loop"
)

// many returns an informer of n objects, each in a cluster of its own: "c0" and so on.
func many(t *testing.T, n int) (source, *informer) {
	t.Helper()
	objs := make([]*corev1.ConfigMap, n)
	for i := range objs {
		objs[i] = configMap(fmt.Sprintf("c%d", i), "x")
	}
	src := newSource(objs...)
	return src, running(t, src)
}

// slow is a record whose reconciles take time.
type slow struct {
	record[cache.ObjectName]
	takes time.Duration
}

func (s *slow) reconcile(ctx context.Context, k cache.ObjectName) error {
	time.Sleep(s.takes)
	return s.record.reconcile(ctx, k)
}

// However much the sweep has found, what happens now is reconciled by the next worker that is free, and some always
// are.
func TestWhatHappensNowDoesNotWaitForTheSweepI13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, workers = 5000, 8
		src, inf := many(t, objects)
		done := slow{takes: time.Second}
		l := loop.New("test", workers, done.reconcile)
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		time.Sleep(time.Minute)
		done.take()
		for n := range 10 {
			src.Modify(configMap("new", fmt.Sprint(n)))
			time.Sleep(1500 * time.Millisecond)
			reconciled := done.take()
			if !slices.Contains(reconciled, cache.MetaObjectToName(configMap("new", fmt.Sprint(n)))) {
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
		seen := map[cache.ObjectName]bool{}
		var l *loop.Loop[cache.ObjectName]
		busy := 0
		l = loop.New("test", 4, func(_ context.Context, k cache.ObjectName) error {
			time.Sleep(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if k.Name == "busy" { // each makes another: the queue never runs out of fresh keys
				busy++
				l.Add(cache.ObjectName{Name: "busy", Namespace: k.Namespace})
			} else {
				seen[k] = true
			}
			return nil
		})
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		for n := range 100 {
			l.Add(cache.ObjectName{Name: "busy", Namespace: cache.MetaObjectToName(configMap(fmt.Sprint("b", n), "")).Namespace})
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
		src, inf := many(t, 200)
		var done record[cache.ObjectName]
		l := loop.New("test", 2, done.reconcile)
		l.Needs(func(k cache.ObjectName) bool { return k.Namespace == "c7" || k.Namespace == "c150" })
		loop.Watch(l, inf, keys)
		stop := start(t.Context(), l)
		got := done.take()
		slices.SortFunc(got, func(a, b cache.ObjectName) int { return len(a.Namespace) - len(b.Namespace) })
		if len(got) != 2 || got[0].Namespace != "c7" || got[1].Namespace != "c150" {
			t.Errorf("the sweep queued %v", got)
		}
		src.Modify(configMap("c8", "x"))
		if got := done.take(); len(got) != 1 || got[0].Namespace != "c8" {
			t.Errorf("a change queued %v: Needs is for the sweep only", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What has changed while nobody led, and just before, is more urgent than the rest of what the sweep finds.
func TestTheSweepBeginsWithWhatChangedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, objects := range []int{20, 5000} {
			src, inf := many(t, objects)
			src.Modify(configMap("c7", "x"))
			src.Modify(configMap("new", "created"))
			synctest.Wait()
			done := slow{takes: time.Second}
			l := loop.New("test", 1, done.reconcile)
			loop.Watch(l, inf, keys)
			stop := start(t.Context(), l)
			time.Sleep(2500 * time.Millisecond)
			if got := done.take(); len(got) != 2 || got[0].Namespace != "new" || got[1].Namespace != "c7" {
				t.Errorf("of %d objects, reconciled first: %v", objects, got)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A key that fails in the sweep comes back into the sweep's lane: a hundred thousand of them would otherwise be in
// everybody's way.
func TestARetryStaysInItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, inf := many(t, 3000)
		ctx := klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true))))
		var done record[cache.ObjectName]
		l := loop.New("test", 4, func(ctx context.Context, k cache.ObjectName) error {
			if k.Namespace != "new" {
				time.Sleep(time.Second)
				return errors.New("still broken")
			}
			return done.reconcile(ctx, k)
		})
		// a few hundred
		l.Needs(func(k cache.ObjectName) bool { return k.Namespace[len(k.Namespace)-1] == '1' })
		loop.Watch(l, inf, keys)
		stop := start(ctx, l)
		time.Sleep(time.Hour)
		for range 5 {
			l.Add(cache.ObjectName{Namespace: "new"})
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
		l.Needs(func(k cache.ObjectName) bool { return k.Namespace == "c7" || k.Namespace == "c8" })
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
