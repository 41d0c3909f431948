package e2e

import (
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkStart is from the start of a lone replica on an embedded etcd, its keys to be made, to ready.
func BenchmarkStart(b *testing.B) {
	var total time.Duration
	for range b.N {
		shard := harness.NewShard("")
		shard.Timings = harness.Default
		began := time.Now()
		r := shard.Start(b, "a")
		total += time.Since(began)
		r.WaitRoot()
		b.ReportMetric(float64(r.ResidentMiB()), "MiB-resident")
		r.Kill()
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms/start")
	b.ReportMetric(0, "ns/op")
}
