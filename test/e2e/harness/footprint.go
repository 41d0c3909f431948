package harness

// Footprint is what a replica has open.
type Footprint struct{ Goroutines, Heap, Descriptors int }

// FootprintOf takes the smallest of several looks: watches time out and come back, requests come and go.
func FootprintOf(r *Replica) Footprint {
	r.t.Helper()
	var least Footprint
	for n := range 10 {
		var now Footprint
		// Upstream's watch cache leaves a timer of 3 s behind for every read that waited for it: as many as
		// there were requests lately, and none of a term's.
		all, timers := r.Goroutines("cacher.(*watchCache).waitUntilFreshLocked")
		now.Goroutines = all - timers
		now.Heap, now.Descriptors = r.Heap(), r.Descriptors()
		if n == 0 {
			least = now
		}
		least = Footprint{min(least.Goroutines, now.Goroutines), min(least.Heap, now.Heap), min(least.Descriptors, now.Descriptors)}
	}
	return least
}
