package loop_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// However much the sweep has found, what happens now is reconciled by the next worker that is free, and some always
// are.
func TestWhatHappensNowDoesNotWaitForTheSweepI13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, workers = 5000, 8
		source, inf := many(t, objects)
		done := slow{takes: time.Second}
		l := loop.New(clusters.Range{}, "test", workers, done.reconcile)
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

func TestTheSweepQueuesOnlyKeysThatNeedSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, inf := many(t, 200)
		var done record[clusters.Key]
		l := loop.New(clusters.Range{}, "test", 2, done.reconcile)
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
		l := loop.New(clusters.Range{}, "test", 1, done.reconcile)
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
