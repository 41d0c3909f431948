package server

import (
	"slices"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// watchHistory is what the watch cache of a resource has received, now and when its capacity was last changed, and how
// many events it keeps. Upstream doubles the capacity until the events kept are of 75 s at least, and fills it then: it
// never drops an event for its age. So the heap grows until the histories of all resources that change are full, which
// takes hundreds of terms after one in which the machine was slow.
type watchHistory struct{ received, resized, capacity float64 }

// watchHistories are of this process, by resource.
func watchHistories(t *testing.T) map[string]watchHistory {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	histories := map[string]watchHistory{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var resource string
			for _, l := range m.GetLabel() {
				resource += "/" + l.GetValue()
			}
			h := histories[resource]
			switch family.GetName() {
			case "apiserver_watch_cache_events_received_total":
				h.received = m.GetCounter().GetValue()
			case "watch_cache_capacity":
				h.capacity = m.GetGauge().GetValue()
			default:
				continue
			}
			histories[resource] = h
		}
	}
	if len(histories) == 0 {
		t.Fatal("upstream's metrics of watch caches are gone: what tells how many events they keep?")
	}
	return histories
}

// growing are the resources that have changed since, and whose histories are not full.
func growing(since, now map[string]watchHistory) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for resource, h := range now {
			before := since[resource]
			if h.resized = before.resized; h.capacity != before.capacity {
				h.resized = h.received
			}
			now[resource] = h
			if h.received > before.received && h.received-h.resized < h.capacity && !yield(resource) {
				return
			}
		}
	})
}

func TestAHistoryGrowsUntilItIsFullAgain(t *testing.T) {
	now := map[string]watchHistory{}
	for i, step := range []struct {
		received, capacity float64
		grows              bool
	}{{50, 100, true}, {150, 100, false}, {150, 100, false}, {160, 200, true}, {300, 200, true}, {300, 200, false}, {400, 200, false}, {410, 100, true}, {520, 100, false}} {
		since := now
		now = map[string]watchHistory{"a": {received: step.received, capacity: step.capacity}}
		if grows := len(growing(since, now)) > 0; grows != step.grows {
			t.Errorf("step %d: %v, want %v", i, grows, step.grows)
		}
	}
}
