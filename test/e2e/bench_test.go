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

// BenchmarkTakeover is from the leader's death, or the signal to it, to the first reconcile of the survivor: a workspace
// that was created while the leader did not run has its cluster. The timings are the defaults.
func BenchmarkTakeover(b *testing.B) {
	for _, how := range []string{"killed", "killed-same-root-directory", "asked-to-stop"} {
		b.Run(how, func(b *testing.B) {
			var total, worst time.Duration
			for range b.N {
				took := takeover(b, how)
				total, worst = total+took, max(worst, took)
			}
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms/takeover")
			b.ReportMetric(float64(worst.Milliseconds()), "ms-worst")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func takeover(b *testing.B, how string) time.Duration {
	shard := harness.NewShard(harness.StartEtcd(b).URL)
	shard.Timings = harness.Default
	first := shard.Start(b, "a")
	var second *harness.Replica
	if how == "killed-same-root-directory" {
		second = shard.Start(b, "b", "--root-directory="+first.Root)
	} else {
		second = shard.Start(b, "b")
	}
	leader, others := harness.Leader(b, first, second)
	survivor := others[0]
	survivor.WaitRoot()
	var began time.Time
	if how == "asked-to-stop" {
		began = time.Now()
		leader.Signal(15)
		survivor.CreateWorkspace("pending")
	} else {
		leader.Signal(19) // so that it does not do the work before it dies
		survivor.CreateWorkspace("pending")
		began = time.Now()
		leader.Kill()
	}
	survivor.WaitWorkspace("pending")
	took := time.Since(began)
	for _, r := range []*harness.Replica{leader, survivor} {
		r.Kill()
	}
	return took
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
