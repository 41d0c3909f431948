package e2e

import (
	"flag"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/cuts"
	"github.com/regent-project/regent/test/e2e/harness"
)

var cutTimings = flag.Bool("default-timings", false, "cut networks with the default lease timings")

// Whatever network is cut, exactly one leads, in the end and all along: etcd's history has no write outside of its
// term. It is slow because the cuts happen one after the other, and that a leader for life leads on is watched for
// longer than a lease.
//
// Each cut happens in mode lease; in the others those do from which the leader hears nothing of etcd, unless -all.
func TestWhateverNetworkIsCutOneLeadsAndNothingStaleIsWritten(t *testing.T) {
	t.Parallel()
	// A lease that expires long after its holder has stepped aside, on a busy machine too.
	timings := faultyTimings
	timings.Lease *= 2
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
				shard := cuts.Start(t, harness.Program(t, "faulty"), timings, mode, detection, calmWriter)
				for _, c := range cuts.All {
					if mode != harness.Lease && !c.FromEtcd && !*all {
						continue
					}
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
