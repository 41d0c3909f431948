package supervisor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// BenchmarkThousandControllers is from the beginning of a term to the moment when the Run of each of 1,000 trivial
// controllers runs, and from the end of the term to all joined.
func BenchmarkThousandControllers(b *testing.B) {
	const n = 1000
	var started, joined, slowestStart, slowestJoin time.Duration
	for range b.N {
		var running sync.WaitGroup
		running.Add(n)
		var set []control.Descriptor[deps]
		for i := range n {
			set = append(set, descriptor(fmt.Sprintf("c%d", i), func(ctx context.Context) error {
				running.Done()
				<-ctx.Done()
				return nil
			}))
		}
		ctx, cancel := context.WithCancel(klog.NewContext(b.Context(), logr.Discard()))
		ended := make(chan error, 1)
		began := time.Now()
		go func() {
			ended <- supervisor.Run(ctx, set, deps{}, supervisor.Config{DrainTimeout: time.Minute})
		}()
		running.Wait()
		took := time.Since(began)
		began = time.Now()
		cancel()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		joining := time.Since(began)
		started, joined = started+took, joined+joining
		slowestStart, slowestJoin = max(slowestStart, took), max(slowestJoin, joining)
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(started)/float64(b.N), "ms/start")
	b.ReportMetric(ms(slowestStart), "ms-slowest-start")
	b.ReportMetric(ms(joined)/float64(b.N), "ms/join")
	b.ReportMetric(ms(slowestJoin), "ms-slowest-join")
	b.ReportMetric(0, "ns/op")
}
