package e2e

import (
	"flag"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/cuts"
	"github.com/regent-project/regent/test/e2e/harness"
)

var cutTimings = flag.Bool("default-timings", false, "cut networks with the default lease timings")

// Whatever network is cut, exactly one leads, in the end and all along: etcd's history has no write outside of its term.
func TestWhateverNetworkIsCutOneLeadsAndNothingStaleIsWritten(t *testing.T) {
	timings := faultyTimings
	if *cutTimings {
		timings = harness.Default
	}
	for _, mode := range cuts.Modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			shard := cuts.Start(t, faultyBinary(t), timings, mode)
			for _, c := range cuts.All {
				outcome := shard.Try(t, c, timings.Retry*3)
				if outcome.Trigger == "" {
					t.Logf("%s: cut %s: the leader leads on", mode, c.Name)
				} else {
					t.Logf("%s: cut %s: first write of the next leader after %v", mode, c.Name, outcome.Took.Round(time.Millisecond))
				}
			}
			shard.Judge(t)
		})
	}
}
