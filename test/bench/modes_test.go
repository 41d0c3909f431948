package bench

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkModes is BenchmarkFailover of ours alone, in each mode of election. Leaders for life share a machine, as far
// as they know: elsewhere they wait for an operator.
func BenchmarkModes(b *testing.B) {
	server, err := build()
	if err != nil {
		b.Fatal(err)
	}
	table, said, began := tableHead, "", time.Now()
	for _, mode := range []string{harness.Lease, harness.Coordinated, harness.ForLife} {
		b.Run(mode, func(b *testing.B) {
			shard := harness.NewShard("")
			shard.Binary, shard.Mode, shard.OneMachine = server, mode, mode == harness.ForLife
			m := startShard(b, shard)
			if said == "" {
				said = versions(b) + ".\n"
			}
			killed := row{event: "kill -9", name: "Regent, `" + mode + "`"}
			stopped := row{event: "SIGTERM", name: killed.name}
			// also of a run that fails
			defer func() { table, said = table+killed.String()+stopped.String(), said+m.disk(b)+".\n" }()
			for n := range *modesFlag {
				killed.samples = append(killed.samples, ours{}.turn(b, m, syscall.SIGKILL))
				stopped.samples = append(stopped.samples, ours{}.turn(b, m, syscall.SIGTERM))
				progress("%s, %d of %d: killed %s, stopped %s", mode, n+1, *modesFlag, show(killed.samples[n].took), show(stopped.samples[n].took))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	fmt.Printf("\n%s\n%s%s\n", table, said, closing(began))
}
