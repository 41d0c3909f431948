package e2e

import (
	"flag"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/cuts"
	"github.com/regent-project/regent/test/e2e/harness"
)

var cutTimings = flag.Bool("default-timings", false, "cut networks with the default lease timings")

// Whatever network is cut, exactly one leads, in the end and all along: etcd's history has no write outside of its term. It is
// slow because the cuts happen one after the other, and that a leader for life leads on is watched for longer than a lease.
func TestWhateverNetworkIsCutOneLeadsAndNothingStaleIsWritten(t *testing.T) {
	t.Parallel()
	timings := faultyTimings
	if *cutTimings {
		timings = harness.Default
	}
	for _, mode := range modes {
		for _, detection := range cuts.Detections {
			if mode == harness.ForLife && detection == "suspect" {
				continue // the one contradicts the other
			}
			t.Run(mode+"/"+detection, func(t *testing.T) {
				t.Parallel() // most of it is waiting
				while := 3 * timings.Retry
				if mode == harness.ForLife {
					while = timings.Lease + time.Second
				}
				shard := cuts.Start(t, harness.Program(t, "faulty"), timings, mode, detection)
				for _, c := range cuts.All {
					outcome := shard.Try(t, c, while)
					if outcome.Trigger == "" {
						t.Logf("%s, %s: cut %s: the leader leads on", mode, detection, c.Name)
					} else {
						t.Logf("%s, %s: cut %s: first write of the next leader after %v", mode, detection, c.Name, outcome.Took.Round(time.Millisecond))
					}
				}
				shard.Judge(t)
			})
		}
	}
}
