package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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
		b.ReportMetric(float64(residentMiB(b, r.PID())), "MiB-resident")
		r.Kill()
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms/start")
	b.ReportMetric(0, "ns/op")
}

// residentMiB is what the process has in memory.
func residentMiB(b *testing.B, pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
			if err != nil {
				b.Fatal(err)
			}
			return n >> 10
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
