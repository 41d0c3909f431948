package e2e

import (
	"flag"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

var outages = flag.String("outages", "60s", "how long etcd is away in TestSomebodyLeadsSoonAfterAnOutageOfEtcd, separated by commas")

// However long etcd was away, no back-off outlives it for long: gRPC's own grows to two minutes. It is slow
// because a back-off has to grow before it can be seen to be cut short.
func TestSomebodyLeadsSoonAfterAnOutageOfEtcd(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, outage := range strings.Split(*outages, ",") {
		away, err := time.ParseDuration(outage)
		if err != nil {
			t.Fatalf("-outages: %v", err)
		}
		t.Run(outage, func(t *testing.T) {
			t.Parallel()
			etcd := harness.StartEtcd(t)
			shard := harness.NewShard(etcd.URL)
			shard.Timings = harness.Default
			replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
			leader, _ := harness.Leader(t, replicas...)
			leader.WaitRoot()
			etcd.Kill()
			time.Sleep(away)
			if shard.Mode != harness.ForLife && leader.Terms()[0].Reason == "" {
				t.Fatal("the term goes on: the outage was too short to prove anything")
			}
			etcd.Start(t) // returns when it answers
			began := time.Now()
			const soon = 15 * time.Second // 5 on a machine that is not busy
			harness.EventuallyIn(t, soon, "somebody leads", func() bool { return replicas[0].Leads() || replicas[1].Leads() })
			leads := time.Since(began)
			for _, r := range replicas {
				harness.EventuallyIn(t, soon, r.Name()+" is ready", func() bool { return r.Status("/readyz") == http.StatusOK })
			}
			t.Logf("after an outage of %v somebody leads %v after etcd is back, and all are ready after %v",
				away, leads.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
			leader.CreateWorkspace("after")
			leader.WaitWorkspace("after")
		})
	}
}
