package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// BenchmarkHandover is from the request to step down to the first committed write of the other replica's controller,
// again and again, between two processes that live on: neither slower nor larger in the end. It prints a table. Every
// handover counts. The handovers follow each other as closely as they can without a candidate that rests.
func BenchmarkHandover(b *testing.B) {
	m := start(b)
	first, second := m.leader, m.standby
	pids := []int{first.PID(), second.PID()}
	const early, some = 10, 50
	var all row
	var footprints string
	for n := range *handovers {
		// Whoever was asked to step down does not campaign for a retry period. Sooner, the rest of that would
		// be measured.
		time.Sleep(harness.Default.Retry + 50*time.Millisecond + rand.N(100*time.Millisecond))
		all.samples = append(all.samples, m.handOver(b))
		if done := n + 1; done == early || done == *handovers {
			for _, r := range []*harness.Replica{first, second} {
				f := harness.FootprintOf(r)
				footprints += fmt.Sprintf("| %d | %s | %d | %d | %.1f MiB |\n", done, r.Name(), f.Goroutines, f.Descriptors, float64(f.Heap)/(1<<20))
			}
		}
		if (n+1)%some == 0 {
			progress("%d handovers, the last took %s", n+1, show(all.samples[n].took))
		}
	}
	if now := []int{first.PID(), second.PID()}; !slices.Equal(now, pids) || !first.Alive() || !second.Alive() {
		b.Errorf("the processes were %v and are %v", pids, now)
	}
	b.ReportMetric(0, "ns/op")
	k := min(some, len(all.samples))
	all.event, all.name = "step down", "all"
	firsts := row{event: "step down", name: fmt.Sprintf("the first %d", k), samples: all.samples[:k]}
	lasts := row{event: "step down", name: fmt.Sprintf("the last %d", k), samples: all.samples[len(all.samples)-k:]}
	fmt.Printf("\n%s%s%s%s\n", tableHead, firsts, lasts, all)
	fmt.Printf("| after handovers | replica | goroutines | open files and connections | heap after GC |\n|---|---|---|---|---|\n%s\n%s.\n%s.\n\n",
		footprints, versions(b), m.disk(b))
}

// handOver has the leader step down. The other must lead next.
func (m *machine) handOver(b *testing.B) sample {
	load := loadAverage(b)
	began := time.Now()
	m.leader.StepDown("bench")
	next := m.writes.next(b, history.FirstWrite, m.term)
	if next.pid != m.standby.PID() {
		b.Errorf("process %d leads next, and %d stood by", next.pid, m.standby.PID())
	}
	m.term = next.term
	if next.pid == m.standby.PID() {
		m.leader, m.standby = m.standby, m.leader
	}
	return sample{took: next.at.Sub(began), load: load}
}
