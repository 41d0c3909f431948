package e2e

import (
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// coordinated has a replica stand for election with a version.
func coordinated(version string) []string {
	return []string{"--leader-election-mode=coordinated", "--leader-election-emulation-version=" + version}
}

// mustLead waits until that replica leads, and nobody else does.
func mustLead(t *testing.T, want *harness.Replica, all ...*harness.Replica) {
	t.Helper()
	harness.Eventually(t, want.Name()+" leads", func() bool {
		for _, r := range all {
			if r.Leads() != (r == want) {
				return false
			}
		}
		return true
	})
}

// I1 to I4, I8: replicas are rolled to a new version, and back. Of those that serve the oldest version leads at every
// step, so that the version of the leader changes once; users of a replica that lives notice nothing.
func TestTheOldestVersionLeadsWhileReplicasAreRolledUpAndDown(t *testing.T) {
	t.Parallel()
	const before, after = "1.36.0", "1.37.0"
	etcd := harness.StartEtcd(t)
	recorder := history.Record(t, etcd.Client(t), "/registry")
	shard := harness.NewShard(etcd.URL)
	shard.Binary, shard.Args, shard.Timings = harness.Program(t, "faulty"), []string{"--writer=fenced"}, harness.Timings{Lease: 10 * time.Second, Renew: 8 * time.Second, Retry: 500 * time.Millisecond}
	versions := map[*harness.Replica]string{}
	start := func(name, version string) *harness.Replica {
		r := shard.Start(t, name, coordinated(version)...)
		versions[r] = version
		return r
	}
	a := start("a", before)
	mustLead(t, a, a)
	all := []*harness.Replica{a, start("b", before), start("c", before)}
	a.WaitRoot()
	users := ask(t, start("users", after)) // it lives through all of it, and is the newest

	terms := func() (n int) {
		for r := range versions {
			n += len(r.Terms())
		}
		return n
	}
	// roll replaces one replica after the other, and waits until who leads then has the version that must lead.
	roll := func(to string) {
		for i, old := range all {
			led := old.Leads()
			had := terms()
			old.Signal(syscall.SIGTERM)
			if code := old.Wait(); code != 0 {
				t.Errorf("%s ended with %d", old.Name(), code)
			}
			all[i] = start(old.Name()+"-to-"+to, to)
			delete(versions, old)
			oldest := after
			for _, version := range versions {
				oldest = min(oldest, version)
			}
			harness.Eventually(t, "a replica of version "+oldest+" leads", func() bool {
				leaders := 0
				for r, version := range versions {
					if r.Alive() && r.Leads() {
						if leaders++; version != oldest {
							return false
						}
					}
				}
				return leaders == 1
			})
			t.Logf("%s -> %s: it led: %v; %d terms before, %d after, of those that live", old.Name(), to, led, had, terms())
		}
	}
	roll(after)
	roll(before)
	name := "after-the-rolls"
	all[0].CreateWorkspace(name)
	all[0].WaitWorkspace(name)
	users.mustHaveSucceeded(t)

	// A replica may be ready before it is a candidate.
	harness.Eventually(t, "there are four candidates of four replicas", func() bool {
		candidates, err := all[0].Candidates().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(candidates.Items) == 4
	})
	events := recorder.Finish(t)
	spans := history.Terms(events, leaseOf)
	if stale, backwards := history.Stale(events, spans), history.Backwards(events, spans); len(stale) > 0 || len(backwards) > 0 || len(history.Twice(spans)) > 0 {
		t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q\ntwice: %q", stale, backwards, history.Twice(spans))
	}
	t.Logf("%d terms, %d changes", len(spans), len(events))
}

// Both its leases are known to be of a dead process.
func TestALoneReplicaOfModeCoordinatedThatIsKilledLeadsAsSoonAsItIsBack(t *testing.T) {
	t.Parallel()
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default // no lease is to expire here
	r := shard.Start(t, "a", coordinated("1.36.0")...)
	mustLead(t, r, r)
	r.Kill()
	killed := time.Now()
	r.Again()
	r.WaitReady()
	mustLead(t, r, r)
	t.Logf("led after %v", time.Since(killed).Round(time.Millisecond))
	mustNotHaveExpired(t, r)
}

// mustNotHaveExpired fails the test if a process has waited for the end of a lease of another one.
func mustNotHaveExpired(t *testing.T, r *harness.Replica) {
	t.Helper()
	if lines := r.Lines("the lease of ", " expired"); len(lines) > 0 {
		t.Errorf("%s waited until a lease had expired: %q", r.Name(), lines)
	}
}

// I8: the leader dies with all it did, electing others among it.
func TestALeaderOfModeCoordinatedThatIsKilledIsSucceededByTheOldestOfTheOthers(t *testing.T) {
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	shard.Timings = harness.Default // no lease is to expire here
	a := shard.Start(t, "a", coordinated("1.35.0")...)
	mustLead(t, a, a)
	b, c := shard.Start(t, "b", coordinated("1.36.0")...), shard.Start(t, "c", coordinated("1.37.0")...)
	harness.Eventually(t, "the standbys follow", func() bool { return b.Follows() && c.Follows() })
	a.WaitRoot()
	before := a.Lease()

	a.Kill()
	killed := time.Now()
	mustLead(t, b, b, c)
	t.Logf("led after %v: %v", time.Since(killed).Round(time.Millisecond), b.Lines(`"Takeover"`))
	b.CreateWorkspace("after")
	b.WaitWorkspace("after") // the log tells of a term before its work begins
	mustNotHaveExpired(t, b)
	mustNotHaveExpired(t, c)
	if now := b.Lease(); *now.Spec.LeaseTransitions <= *before.Spec.LeaseTransitions {
		t.Errorf("epoch %d after %d", *now.Spec.LeaseTransitions, *before.Spec.LeaseTransitions)
	}

	a.Again() // it is the oldest, and gets the lease in order
	a.WaitReady()
	mustLead(t, a, a, b, c)
	if terms := b.Terms(); len(terms) != 1 || terms[0].Reason != "step down" {
		t.Errorf("the terms of who made way: %v", terms)
	}
	if terms := c.Terms(); len(terms) != 0 {
		t.Errorf("the newest led: %v", terms)
	}
	harness.Throughout(t, 5*time.Second, "it stays so", func() bool { return a.Leads() && !b.Leads() && !c.Leads() })
}
