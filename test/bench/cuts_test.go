package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/cuts"
	"github.com/regent-project/regent/test/e2e/harness"
)

// fastWriter is the pause of writers whose first write is waited for.
const fastWriter = 10 * time.Millisecond

// BenchmarkCuts is from a cut of one of a leader's networks to the first committed write of the next leader, where
// there is to be one: of replicas that suspect whoever is silent, and of replicas that do not. The leader and its
// successor write all the time. It prints a table. Every cut counts, must have the effect that it is meant to have, and
// leaves one leader; that never more than one led in effect, is for etcd's own history to tell.
func BenchmarkCuts(b *testing.B) {
	server, err := build()
	if err != nil {
		b.Fatal(err)
	}
	// Where nothing is to follow, a lease would have expired meanwhile.
	while := harness.Default.Lease + harness.Default.Retry
	table, said, began := cutsHead, "", time.Now()
	for _, mode := range cuts.Detections {
		b.Run(mode, func(b *testing.B) {
			rows := make([]cutRow, len(cuts.All))
			defer func() { // also of a run that fails
				for i, c := range cuts.All {
					table += rows[i].show(mode, c.Name)
				}
			}()
			shard := cuts.Start(b, server, harness.Default, harness.Lease, mode, fastWriter)
			for n := range *cutsFlag {
				for i := range cuts.All { // none is always the first
					i = (i + n) % len(rows)
					load := loadAverage(b)
					outcome := shard.Try(b, cuts.All[i], while)
					rows[i].samples = append(rows[i].samples, sample{took: outcome.Took, load: load})
					rows[i].triggers = append(rows[i].triggers, outcome.Trigger)
					progress("%s, cut %s, %d of %d: %q, %s, load average %.2f", mode, outcome.Cut, n+1, *cutsFlag, outcome.Trigger, show(outcome.Took), load)
				}
			}
			judged := shard.Judge(b)
			said += fmt.Sprintf("`%s`: etcd's history has %d changes by %d terms: ", mode, judged.Changes, judged.Terms)
			if b.Failed() {
				said += "NOT AS IT SHOULD BE, see above.\n"
			} else {
				said += "none is outside of its term, no object went back to an earlier one, no term came twice; after each cut exactly one led, the one that should.\n"
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	fmt.Printf("\n%s\n%s%s.\n%s\n", table, said, versions(b), closing(began))
}

// BenchmarkVanish is from the moment when a leader's machine is gone, so that nothing comes from it any more and
// nothing breaks its connections either, to the first committed write of the next leader, with default flags. It prints
// a table.
func BenchmarkVanish(b *testing.B) {
	server, err := build()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	r := row{event: "vanishes", name: "Regent"}
	defer func() {
		b.ReportMetric(0, "ns/op")
		fmt.Printf("\n%s%s\n%s.\n%s\n", tableHead, r.String(), versions(b), closing(began))
	}()
	shard := cuts.Start(b, server, harness.Default, harness.Lease, "", fastWriter)
	for n := range *vanishes {
		load := loadAverage(b)
		outcome := shard.Try(b, cuts.FromAll, 0)
		r.samples = append(r.samples, sample{took: outcome.Took, load: load})
		progress("vanished, %d of %d: %q, %s, load average %.2f", n+1, *vanishes, outcome.Trigger, show(outcome.Took), load)
	}
	shard.Judge(b)
}

const cutsHead = `| detection | the leader is cut | n | the next term is because of | median | p90 | p99 | max | load average, mean (range) |
|---|---|---|---|---|---|---|---|---|
`

// cutRow is what followed from one cut in one mode, each time.
type cutRow struct {
	samples  []sample
	triggers []string
}

func (r cutRow) show(mode, cut string) string {
	triggers := strings.Join(slices.Compact(slices.Sorted(slices.Values(r.triggers))), ", ")
	all := row{event: mode, name: cut, samples: r.samples}
	if len(all.samples) > 0 && triggers == "" {
		watched := fmt.Sprintf("- (leads on, for %s at least)", show(slices.Min(all.durations())))
		return fmt.Sprintf("| %s | %s | %d | %s | | | | | %s |\n", mode, cut, len(all.samples), watched, all.loads())
	}
	cells := strings.SplitN(all.String(), "|", 5) // empty, detection, cut, n, the others
	return strings.Join([]string{cells[0], cells[1], cells[2], cells[3], " " + triggers + " ", cells[4]}, "|")
}
