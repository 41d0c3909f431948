package command

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/klog/v2"
)

// limitMemory has Go's garbage collector keep this process below nine tenths of the memory that its container, or the
// machine, has: it then works harder, where the kernel would end the process otherwise. GOMEMLIMIT and AUTOMEMLIMIT
// decide otherwise.
func limitMemory(ctx context.Context) {
	limit, err := memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		klog.FromContext(ctx).Error(err, "How much memory there is cannot be found out, so Go does not heed it: set GOMEMLIMIT")
		return
	}
	klog.FromContext(ctx).V(2).Info("Go's garbage collector heeds a limit of memory", "bytes", limit)
}

// Go's garbage collector runs when so much has become garbage in proportion to the live heap: as much again, with
// GOGC=100. That is too little of a small heap, which it would walk through ten times a second while users write, and
// too much of a large one, because what a replica has in memory is what the machine must have. So a heap of less than
// leastHeadroom has that, and above wholeHeadroom four times the heap has twice the headroom.
const (
	leastHeadroom = 128 << 20
	wholeHeadroom = 2 << 30
	wholePercent  = 100
	leastPercent  = 20
	mostPercent   = 1000
	paceEvery     = time.Second
)

// collectorPercent returns GOGC for so many bytes of live heap.
func collectorPercent(live uint64) int {
	switch {
	case live < leastHeadroom:
		return int(min(mostPercent, wholePercent*leastHeadroom/max(live, 1)))
	case live <= wholeHeadroom:
		return wholePercent
	}
	return max(leastPercent, int(wholePercent*math.Sqrt(float64(wholeHeadroom)/float64(live))))
}

// differs reports whether two values of GOGC are so far apart that it is worth to stop all goroutines for a moment,
// which setting it does.
func differs(a, b int) bool { return 10*max(a-b, b-a) > b }

// paceCollector keeps GOGC as the live heap wants it, until stop is called. GOGC in the environment decides otherwise.
func paceCollector() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	done := make(chan struct{})
	var pacing sync.WaitGroup
	pacing.Go(func() {
		heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		tick, now := time.NewTicker(paceEvery), wholePercent
		defer tick.Stop()
		for {
			metrics.Read(heap)
			if percent := collectorPercent(heap[0].Value.Uint64()); differs(percent, now) {
				debug.SetGCPercent(percent)
				now = percent
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(done)
		pacing.Wait()
	}
}
