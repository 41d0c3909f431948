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

// Up to wholeHeadroom of live heap, Go's garbage collector lets as much again become garbage before it runs: that is
// GOGC=100. Of more live heap it lets the less become garbage, in proportion, the more there is, because what a replica
// has in memory is what the machine must have: four times the heap has twice the headroom.
const (
	wholeHeadroom = 2 << 30
	wholePercent  = 100
	leastPercent  = 20
	paceEvery     = 10 * time.Second
)

// collectorPercent returns GOGC for so many bytes of live heap.
func collectorPercent(live uint64) int {
	if live <= wholeHeadroom {
		return wholePercent
	}
	return max(leastPercent, int(wholePercent*math.Sqrt(float64(wholeHeadroom)/float64(live))))
}

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
			select {
			case <-done:
				return
			case <-tick.C:
			}
			metrics.Read(heap)
			// to set it stops all goroutines for a moment
			if percent := collectorPercent(heap[0].Value.Uint64()); percent != now {
				debug.SetGCPercent(percent)
				now = percent
			}
		}
	})
	return func() {
		close(done)
		pacing.Wait()
	}
}
