package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/e2e/harness"
)

// shardAsToldBy returns what a replica says of its shard, and how long it took to say so.
func shardAsToldBy(t *testing.T, r *harness.Replica) (shard status.Shard, took time.Duration) {
	t.Helper()
	began := time.Now()
	body, err := r.Kube("system:admin").Discovery().RESTClient().Get().AbsPath(status.ShardPath).Do(t.Context()).Raw()
	took = time.Since(began)
	if err == nil {
		err = json.Unmarshal(body, &shard)
	}
	if err != nil {
		t.Fatalf("%s: %v", r.Name(), err)
	}
	return shard, took
}

// faultOf returns what is wrong with a replica, and whether it is listed.
func faultOf(shard status.Shard, replica string) (fault string, listed bool) {
	n := slices.IndexFunc(shard.Replicas, func(r status.Replica) bool { return r.Name == replica })
	if n < 0 {
		return "", false
	}
	return shard.Replicas[n].Fault, true
}

// Whichever replica is asked tells of all: that one was killed, that another one hangs, and who leads. The answer does
// not wait for them.
func TestOneReplicaTellsOfThoseThatWereKilledOrHang(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Mode, shard.Timings = harness.Lease, harness.Default // who leads is to lead until it is killed
	leader, others := harness.Leader(t, shard.Start(t, "a"), shard.Start(t, "b"), shard.Start(t, "c"))
	awaitContact(t, "alive", others...)
	for _, at := range append(others, leader) {
		harness.Eventually(t, at.Name()+" tells of three that answer", func() bool {
			told, _ := shardAsToldBy(t, at)
			return told.Leader == replicaOf(leader) && len(told.Replicas) == 3 &&
				!slices.ContainsFunc(told.Replicas, func(r status.Replica) bool { return r.Fault != "" || r.URL == "" || len(r.NotReady) > 0 })
		})
	}

	began := time.Now()
	leader.Kill()
	harness.Eventually(t, "the killed one has a fault, and another one leads", func() bool {
		told, _ := shardAsToldBy(t, others[0])
		fault, listed := faultOf(told, replicaOf(leader))
		return listed && fault != "" && told.Leader != "" && told.Leader != replicaOf(leader)
	})
	t.Logf("kill -9 until it is told who leads: %v", time.Since(began).Round(time.Millisecond))

	next, standby := harness.Leader(t, others...)
	awaitContact(t, "alive", standby...)
	told := func() string {
		all, took := shardAsToldBy(t, next)
		if took > 10*time.Second { // two, and what a busy machine takes
			t.Errorf("the answer took %v", took)
		}
		fault, listed := faultOf(all, replicaOf(standby[0]))
		if !listed {
			return "not listed"
		}
		return fault
	}
	harness.Eventually(t, "the standby answers", func() bool { return told() == "" })
	standby[0].Signal(syscall.SIGSTOP)
	harness.Eventually(t, "the standby that hangs has a fault", func() bool { return told() != "" })
	standby[0].Signal(syscall.SIGCONT)
	harness.Eventually(t, "the standby answers again", func() bool { return told() == "" })

	killed := replicaOf(leader)
	leader.Again()
	leader.WaitReady()
	harness.Eventually(t, "it logs its name", func() bool { return replicaOf(leader) != "" })
	if now := replicaOf(leader); now != killed {
		t.Errorf("replica %s is called %s when it is started anew", killed, now)
	}
	all := func() (names string, faults []string) {
		told, _ := shardAsToldBy(t, next)
		for _, r := range told.Replicas {
			names += r.Name + " "
			faults = append(faults, r.Fault)
		}
		return names, slices.DeleteFunc(faults, func(fault string) bool { return fault == "" })
	}
	three, _ := all()
	harness.Eventually(t, "the killed one is back as the same replica, and nobody has a fault", func() bool {
		names, faults := all()
		return names == three && strings.Count(names, " ") == 3 && strings.Contains(names, killed+" ") && len(faults) == 0
	})

	sameName := func() bool {
		var of status.Installation
		code, body := next.Get(status.InstallationPath)
		return code == 200 && json.Unmarshal([]byte(body), &of) == nil &&
			slices.ContainsFunc(of.Problems, func(p status.Problem) bool { return p.Kind == "same-name" && p.Replica == killed })
	}
	twin := shard.Start(t, "twin", "--replica-name="+killed)
	harness.Eventually(t, "two of one name are told", func() bool {
		names, faults := all()
		return sameName() && strings.Count(names, killed+" ") == 2 && strings.Count(names, " ") == 4 && len(faults) == 0
	})
	twin.Signal(syscall.SIGTERM)
	twin.Wait()
	harness.Eventually(t, "when one has stopped in order the other one is listed, and has no fault", func() bool {
		names, faults := all()
		return !sameName() && names == three && len(faults) == 0
	})
}
