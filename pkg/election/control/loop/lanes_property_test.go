package loop

import (
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
)

// queueOver returns a work queue in the order of lanes, as Run makes it, without the delays.
func queueOver(l *lanes[int]) *workqueue.Typed[int] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Queue: l})
}

// Whatever is added, taken and finished in whatever order: a key that was added is taken after that, by one worker at a
// time; what is wanted fresh is taken before the swept keys that wait, but for their share; and no more swept keys are
// worked on than allowed.
func TestLanesLoseNothingAndKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 3).Draw(t, "limit")
		l := newLanes[int](1, limit)
		q := queueOver(l)
		defer q.ShutDown()
		due := map[int]bool{}  // keys that must be taken some time, and whether they are fresh
		busy := map[int]lane{} // keys that are worked on
		freshInARow := 0
		take := func() {
			waiting := map[lane]int{}
			for k, isFresh := range due {
				if _, ok := busy[k]; ok {
					continue
				}
				if isFresh {
					waiting[fresh]++
				} else {
					waiting[swept]++
				}
			}
			k, _ := q.Get()
			isFresh, ok := due[k]
			if _, working := busy[k]; working || !ok {
				t.Fatalf("took %d: due %v, worked on by another %v", k, ok, working)
			}
			delete(due, k)
			from := swept
			if isFresh {
				from = fresh
			}
			if got := l.of(k); got != from {
				t.Fatalf("key %d was taken from lane %d, want %d", k, got, from)
			}
			busy[k] = from
			sweptBusy := 0
			for _, in := range busy {
				if in == swept {
					sweptBusy++
				}
			}
			if sweptBusy > limit {
				t.Fatalf("%d swept keys are worked on, want at most %d", sweptBusy, limit)
			}
			switch {
			case from == swept && waiting[fresh] > 0 && freshInARow < sweptShare-1:
				t.Fatalf("a swept key was taken after %d fresh ones, while %d fresh ones wait", freshInARow, waiting[fresh])
			case from == swept:
				freshInARow = 0
			case waiting[swept] > 0:
				freshInARow++
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := rapid.IntRange(0, 9).Draw(t, "key")
				l.want(k, fresh)
				q.Add(k)
				due[k] = true
			},
			"sweep": func(t *rapid.T) {
				k := rapid.IntRange(0, 9).Draw(t, "key")
				l.want(k, swept)
				q.Add(k)
				if !due[k] { // it stays fresh
					due[k] = false
				}
			},
			"take": func(t *rapid.T) {
				if q.Len() == 0 {
					return
				}
				take()
			},
			"finish": func(t *rapid.T) {
				if len(busy) == 0 {
					return
				}
				var keys []int
				for k := range busy {
					keys = append(keys, k)
				}
				slices.Sort(keys)
				k := rapid.SampledFrom(keys).Draw(t, "key")
				delete(busy, k)
				l.finish(k)
				q.Done(k)
			},
		})
		for len(due)+len(busy) > 0 {
			for k := range busy {
				l.finish(k)
				q.Done(k)
			}
			clear(busy)
			if len(due) > 0 {
				if q.Len() == 0 {
					t.Fatalf("%v are lost", due)
				}
				take()
			}
		}
		if pending, _ := l.progress(); pending[fresh]+pending[swept]+len(l.wanted)+len(l.working) > 0 {
			t.Fatalf("left: %v pending, %d wanted, %d worked on", pending, len(l.wanted), len(l.working))
		}
	})
}
