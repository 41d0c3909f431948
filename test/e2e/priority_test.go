package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

func TestTheReplicaOfTheHighestPriorityLeadsAndPreemptsOnce(t *testing.T) {
	t.Parallel()
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	// A free lease is left to the highest priority for a quarter of the retry period: a busy machine takes a
	// second.
	shard.Timings = harness.Timings{Lease: 10 * time.Second, Renew: 8 * time.Second, Retry: 4 * time.Second}
	shard.Args = []string{"--controller-drain-timeout=2s"} // so that a renewal may come late
	// where versions decide, or weights
	if shard.Mode == harness.Coordinated || shard.Mode == harness.ByPresence {
		shard.Mode = harness.Lease
	}
	low, mid, high := shard.Start(t, "low"), shard.Start(t, "mid", "--leader-election-priority=1"), shard.Start(t, "high", "--leader-election-priority=2")
	mustLead(t, low, low, mid, high)
	harness.Eventually(t, "both standbys follow", func() bool { return mid.Follows() && high.Follows() })
	harness.Eventually(t, "the Lease says that a standby has priority 2", func() bool {
		return strings.Contains(low.Lease().Annotations["regent.dev/presence"], `"standbyPriority":2`)
	})

	low.Kill()
	mustLead(t, high, mid, high)
	if terms := mid.Terms(); len(terms) != 0 {
		t.Errorf("the one of priority 1 led: %v", terms)
	}

	began := time.Now() // it may stand by before it is ready
	best := shard.Start(t, "best", "--leader-election-priority=3", "--leader-election-preempt")
	harness.Eventually(t, "the one that preempts leads", best.Leads)
	took := time.Since(began)
	t.Logf("it preempted %v after it was started", took.Round(time.Millisecond))
	if took < shard.Timings.Lease {
		t.Errorf("it preempted %v after it was started, before it could have led for a lease duration", took)
	}
	if terms := high.Terms(); len(terms) != 1 || terms[0].Reason != "step down" {
		t.Errorf("the terms of who made way: %v", terms)
	}
	harness.Throughout(t, 2*shard.Timings.Lease, "it stays so", func() bool { return best.Leads() && !high.Leads() && !mid.Leads() })
}
