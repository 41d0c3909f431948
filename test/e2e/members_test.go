package e2e

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	memberRounds = flag.Int("member-rounds", 1, "how often each fault happens to each kind of member in TestAMemberOfEtcdThatFailsEndsNoTerm")
	memberRanges = flag.Int("member-ranges", 1, "how many ranges the shard has of which a member of etcd fails")
	memberFault  = flag.Duration("member-fault", 13*time.Second, "how long each fault lasts in TestAMemberOfEtcdThatFailsEndsNoTerm; to prove something, longer than the renew deadline of 10s")
)

// slowSync is how much longer each sync of a slow member's disk takes.
const slowSync = 200 * time.Millisecond

// memberFaults are what can happen to one member of an etcd.
var memberFaults = []struct {
	name       string
	begin, end func(*testing.T, *harness.Member)
}{
	{"hung",
		func(_ *testing.T, m *harness.Member) { m.Signal(syscall.SIGSTOP) },
		func(_ *testing.T, m *harness.Member) { m.Signal(syscall.SIGCONT) }},
	{"killed",
		func(_ *testing.T, m *harness.Member) { m.Kill() },
		func(t *testing.T, m *harness.Member) { m.Start(t) }},
	{"cut off",
		func(_ *testing.T, m *harness.Member) { m.Isolate() },
		func(_ *testing.T, m *harness.Member) { m.Rejoin() }},
	{"cut off from its peers only",
		func(_ *testing.T, m *harness.Member) { m.IsolateFromPeers() },
		func(_ *testing.T, m *harness.Member) { m.Rejoin() }},
	{"slow",
		func(t *testing.T, m *harness.Member) { m.SlowDown(t, slowSync) },
		func(t *testing.T, m *harness.Member) { m.SlowDown(t, 0) }},
}

// An etcd of three members is there for those who fail one at a time: no term ends, no replica becomes unready, and
// what was written is there. What users notice is told. It is slow because each fault lasts for longer than the renew
// deadline, which is the product's, ten seconds: a shorter one could end no term. The kinds of faults run beside each
// other, as many as there are CPUs: where latency counts, give -parallel 1.
func TestAMemberOfEtcdThatFailsEndsNoTerm(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	rows := map[string]*suffering{}
	t.Cleanup(func() { t.Log(sufferingTable(rows)) })
	for n, fault := range memberFaults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			s := startOnThreeMembers(t)
			for round := range *memberRounds {
				for i, victim := range []string{"follower", "raft leader"} {
					// one that hangs, is cut off or slow is worst as the leader
					if !*all && i != (n+1)%2 {
						continue
					}
					name := victim + " " + fault.name
					began, lost := time.Now(), len(s.endedTerms())
					s.suffer(t, victim == "raft leader", fault.begin, fault.end)
					ended := s.endedTerms()[lost:]
					t.Logf("round %d, %s: %d terms ended %v", round, name, len(ended), ended)
					s.rounds = append(s.rounds, memberRound{name: name, began: began, ended: time.Now(), terms: len(ended)})
				}
			}
			for name, row := range s.finish(t) {
				mu.Lock()
				rows[name] = row
				mu.Unlock()
				if row.terms > 0 || row.unready > 0 {
					t.Errorf("%s: %d terms ended, replicas were unready for %v", name, row.terms, row.unready)
				}
			}
		})
	}
}

// memberRound is one fault of one member.
type memberRound struct {
	name         string
	began, ended time.Time
	terms        int // that ended
}

// onThree is a shard of two replicas with users, on an etcd of three members.
type onThree struct {
	etcd     *harness.Etcd
	replicas []*harness.Replica
	users    *users
	probes   *probes
	rounds   []memberRound
}

func startOnThreeMembers(t *testing.T) *onThree {
	t.Helper()
	s := &onThree{etcd: harness.StartEtcdOf(t, harness.EtcdConfig{Members: 3, TLS: true, Networks: true})}
	shard := harness.NewShard("")
	shard.Timings, shard.Args = harness.Default, s.etcd.Flags()
	if *memberRanges > 1 {
		shard.Mode, shard.OneMachine = harness.ByPresence, false
		shard.Args = append(shard.Args, harness.DividedInto(*memberRanges))
	}
	s.replicas = []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	if *memberRanges > 1 {
		s.replicas[0].WaitRoot()
		(&divided{T: t}).awaitShares(*memberRanges, s.replicas...)
	} else {
		leader, others := harness.Leader(t, s.replicas...)
		leader.WaitRoot()
		harness.Eventually(t, "the standby follows", others[0].Follows)
	}
	s.users, s.probes = startUsers(t, s.replicas...), startProbes(t, s.replicas...)
	return s
}

// suffer has one member suffer a fault for a while, and returns some time after all serve again.
func (s *onThree) suffer(t *testing.T, leader bool, begin, end func(*testing.T, *harness.Member)) {
	t.Helper()
	victim, followers := s.etcd.Leader(t)
	if !leader {
		victim = followers[0]
	}
	ends := time.After(*memberFault)
	begin(t, victim)
	// A fault that nobody could notice would prove nothing.
	harness.Eventually(t, victim.Name+" does not answer in time", func() bool { return !victim.Writes(t, "/nobody", slowSync*3/4) })
	<-ends
	end(t, victim)
	s.etcd.WaitHealthy(t)
	time.Sleep(*memberFault / 4) // of what comes back, and of who comes back to it
}

// endedTerms are the terms of the shard's leaders that have ended, and why.
func (s *onThree) endedTerms() (ended []string) {
	for _, r := range s.replicas {
		for _, term := range r.Terms() {
			if term.Reason != "" {
				ended = append(ended, fmt.Sprintf("%s epoch %s: %s", r.Name(), term.Epoch, term.Reason))
			}
		}
	}
	return ended
}

// finish ends what runs beside the faults, and says what was suffered from each.
func (s *onThree) finish(t *testing.T) map[string]*suffering {
	t.Helper()
	s.probes.finish()
	s.users.finish()
	s.users.mustFindWhatTheyWrote(t)
	rows := map[string]*suffering{}
	for _, round := range s.rounds {
		row := rows[round.name]
		if row == nil {
			row = &suffering{}
			rows[round.name] = row
		}
		row.rounds++
		row.terms += round.terms
		row.requests = append(row.requests, s.users.between(round.began, round.ended)...)
		failed, unready := s.probes.between(round.began, round.ended)
		row.failedProbes += failed
		row.unready += unready
	}
	return rows
}

// suffering is what followed from a fault, in all rounds.
type suffering struct {
	rounds, terms, failedProbes int
	unready                     time.Duration
	requests                    []request
}

// sufferingTable is for OPERATIONS.md.
func sufferingTable(rows map[string]*suffering) string {
	var b strings.Builder
	fmt.Fprintf(&b, "each fault for %v, default timings, two replicas, %d requests a second by users\n\n", *memberFault, 2*2*usersRate)
	b.WriteString("| fault | rounds | terms lost | unready, s | probes failed or over 1s | users' requests | failed | p50 | p99 | longest |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, fault := range memberFaults {
		for _, victim := range []string{"follower", "raft leader"} {
			row := rows[victim+" "+fault.name]
			if row == nil {
				continue
			}
			times := durations(row.requests)
			fmt.Fprintf(&b, "| %s %s | %d | %d | %.0f | %d | %d | %d | %v | %v | %v |\n", victim, fault.name, row.rounds, row.terms, row.unready.Seconds(),
				row.failedProbes, len(row.requests), failures(row.requests), quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1))
		}
	}
	return b.String()
}
