package server

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// watchHistory is what the watch cache of a resource has received, and how many events it keeps. Upstream doubles that
// until the events kept are of 75 s at least, and fills it then: it never drops an event for its age. So the heap grows
// until the histories of all resources that change are full.
type watchHistory struct{ received, capacity float64 }

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

// growing are the resources that have changed since, and whose histories are not full or were enlarged.
func growing(since, now map[string]watchHistory) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for resource, h := range maps.All(now) {
			changed := h.received > since[resource].received
			if changed && (h.received < h.capacity || h.capacity != since[resource].capacity) && !yield(resource) {
				return
			}
		}
	})
}
