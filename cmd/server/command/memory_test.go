package command

import (
	"runtime/metrics"
	"testing"
)

func TestALargerHeapHasMoreHeadroomButNotInProportion(t *testing.T) {
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 16 << 20: 800, 64 << 20: 200, 128 << 20: 100, 2 << 30: 100, 8 << 30: 50, 32 << 30: 25, 200 << 30: 20} {
		if got := collectorPercent(live); got != want {
			t.Errorf("%d MiB of live heap: GOGC=%d, want %d", live>>20, got, want)
		}
	}
	before := uint64(0)
	for live := uint64(1 << 20); live < 64<<30; live += live / 7 {
		room := live * uint64(collectorPercent(live)) / 100
		if room*102/100 < before {
			t.Errorf("%d MiB of live heap have less headroom, %d MiB, than fewer: %d", live>>20, room>>20, before>>20)
		}
		before = room
	}
}

func TestTheCollectorIsSetAnewWhenItIsWorthIt(t *testing.T) {
	for _, c := range []struct {
		a, b int
		want bool
	}{{100, 100, false}, {109, 100, false}, {111, 100, true}, {89, 100, true}, {95, 100, false}, {21, 20, false}, {1000, 400, true}} {
		if got := differs(c.a, c.b); got != c.want {
			t.Errorf("from %d to %d: %v", c.b, c.a, got)
		}
	}
}

// Go's own name of it: if it were another one, GOGC would be as for no heap at all.
func TestGoTellsItsLiveHeap(t *testing.T) {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	if metrics.Read(heap); heap[0].Value.Kind() != metrics.KindUint64 {
		t.Errorf("%s is of kind %v", heap[0].Name, heap[0].Value.Kind())
	}
}
