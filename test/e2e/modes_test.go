package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// inMode has a replica stand for election in a mode.
func inMode(mode string) string { return "--leader-election-mode=" + mode }

// The modes, and the order in which each is changed to each other.
var (
	modes       = []string{harness.Lease, harness.Coordinated, harness.ForLife, harness.ByPresence}
	modeChanges = []string{
		modes[0], modes[1], modes[2], modes[3], modes[0], modes[2], modes[1], modes[3], modes[2], modes[0], modes[3], modes[1], modes[0],
	}
)

func TestEachModeIsRolledToEachOther(t *testing.T) {
	for _, mode := range election.Modes {
		if name := string(mode.Name()); !slices.Contains(modes, name) {
			t.Errorf("mode %s is not tried here: add it to modes and modeChanges", name)
		}
	}
	for _, from := range modes {
		for _, to := range modes {
			if rolled := strings.Contains(strings.Join(modeChanges, " "), from+" "+to); !rolled && from != to {
				t.Errorf("no replica is rolled from mode %s to %s", from, to)
			}
		}
	}
}

// I1 to I3, I8: three replicas are rolled from each mode to each other, while they write. The Lease's mode changes once
// in each roll, with the last replica; there are never two leaders, and none for no longer than the change waits for
// the old mode. It is slow because replicas are restarted one after the other, thirty-six times.
func TestReplicasAreRolledFromEachModeToEachOther(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	recorder := history.Record(t, etcd.Client(t), "/registry")
	shard := harness.NewShard(etcd.URL)
	shard.Binary = harness.Program(t, "faulty")
	// A free lease is left to the replicas of its mode for two retry periods: a busy machine takes a while.
	shard.Timings = harness.Timings{Lease: 10 * time.Second, Renew: 8 * time.Second, Retry: 2 * time.Second}
	shard.Args = []string{"--writer=fenced"}
	var all []*harness.Replica
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, shard.Start(t, name, inMode(modeChanges[0])))
	}
	harness.Leader(t, all...)
	for i, to := range modeChanges[1:] {
		for n, old := range all {
			old.Signal(syscall.SIGTERM)
			if code := old.Wait(); code != 0 {
				t.Errorf("%s ended with %d", old.Name(), code)
			}
			all[n] = shard.Start(t, fmt.Sprintf("%s-%s", old.Name()[:1], to), inMode(to))
			leader, others := harness.Leader(t, all...)
			changed := n == len(all)-1
			if strings.HasSuffix(leader.Name(), "-"+to) != changed {
				t.Errorf("%s -> %s: %s leads after %d of %d were restarted", modeChanges[i], to, leader.Name(), n+1, len(all))
			}
			if !changed {
				harness.Eventually(t, "the new ones say that they stand by for another mode", func() bool {
					standing := 0
					for _, r := range others {
						if v, _ := r.Metric(`regent_election_other_mode{name="regent-controllers"}`); v == 1 {
							standing++
						}
					}
					return standing == n+1
				})
			}
		}
		name := fmt.Sprintf("roll-%d", i)
		all[0].CreateWorkspace(name)
		all[0].WaitWorkspace(name)
	}
	for _, r := range all {
		r.Signal(syscall.SIGTERM)
		r.Wait()
	}
	events := recorder.Finish(t)
	spans := history.Terms(events, leaseOf)
	if stale, backwards := history.Stale(events, spans), history.Backwards(events, spans); len(stale) > 0 || len(backwards) > 0 || len(history.Twice(spans)) > 0 {
		t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q\ntwice: %q", stale, backwards, history.Twice(spans))
	}
	longest := time.Duration(0)
	for i := 1; i < len(spans); i++ {
		longest = max(longest, committed(events, spans[i].From).Sub(committed(events, spans[i-1].To)))
	}
	t.Logf("%d terms, %d changes; nobody held the lease for %v at most", len(spans), len(events), longest.Round(time.Millisecond))
}

// committed is when a revision was seen.
func committed(events []history.Event, revision int64) time.Time {
	i := slices.IndexFunc(events, func(e history.Event) bool { return e.Revision == revision })
	return events[i].At
}

// couple is a leader and a standby, on one machine, each with a way to etcd of its own.
type couple struct {
	*testing.T
	shard *harness.Shard
	etcd  *harness.Etcd
	both  []*harness.Replica
	ways  map[*harness.Replica]*harness.Way
	// --mended of each: <file>.<controller> is there while that controller is sound
	whole map[*harness.Replica]string
}

// breaks has one of a replica's controllers go wrong, until it is mended.
func (p *couple) breaks(r *harness.Replica, fault string) (mend func()) {
	p.Helper()
	file := p.whole[r] + "." + fault
	if err := os.Remove(file); err != nil {
		p.Fatal(err)
	}
	return func() { p.makeWhole(file) }
}

func (p *couple) makeWhole(file string) {
	p.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		p.Fatal(err)
	}
}

// roles says who leads and who does not.
func (p *couple) roles() (leader, standby *harness.Replica) {
	p.Helper()
	leader, others := harness.Leader(p.T, p.both...)
	harness.Eventually(p.T, "the standby follows", others[0].Follows)
	return leader, others[0]
}

// outcome is what must come of a fault.
type outcome string

const (
	taken outcome = "the standby leads"
	kept  outcome = "the leader leads on, in its term"
	again outcome = "somebody leads, in a new term"
	none  outcome = "nobody leads until it is mended"
)

// modeFaults are what can happen to a leader, and what comes of it in each mode: in the order of modes.
var modeFaults = []struct {
	name string
	want [4]outcome
	do   func(p *couple, leader, standby *harness.Replica) (mend func())
	// before is what happened before, if anything.
	before func(p *couple, standby *harness.Replica)
}{
	{name: "asked to step down", want: [4]outcome{taken, taken, taken, taken}, do: func(_ *couple, leader, _ *harness.Replica) func() {
		leader.StepDown("a test")
		return nil
	}},
	{name: "SIGTERM", want: [4]outcome{taken, taken, taken, taken}, do: terminate},
	{name: "kill -9", want: [4]outcome{taken, taken, taken, taken}, do: func(_ *couple, leader, _ *harness.Replica) func() {
		leader.Kill()
		return func() { leader.Again(); leader.WaitReady() }
	}},
	{name: "SIGTERM, its standby was killed before", want: [4]outcome{taken, taken, taken, taken}, do: terminate, before: func(p *couple, standby *harness.Replica) {
		standby.Kill()
		standby.Again()
		standby.WaitReady()
		harness.Eventually(p.T, "the standby follows again", standby.Follows)
		if p.shard.Mode != harness.Coordinated {
			return
		}
		harness.Eventually(p.T, "nobody waits for the answer of a candidate that is dead", func() bool {
			list, err := standby.Candidates().List(p.Context(), metav1.ListOptions{})
			return err == nil && len(list.Items) == len(p.both)
		})
	}},
	{name: "SIGSTOP", want: [4]outcome{taken, taken, kept, taken}, do: func(_ *couple, leader, _ *harness.Replica) func() {
		leader.Signal(syscall.SIGSTOP)
		return func() { leader.Signal(syscall.SIGCONT) }
	}},
	{name: "cut off from etcd", want: [4]outcome{taken, taken, kept, taken}, do: func(p *couple, leader, _ *harness.Replica) func() {
		p.ways[leader].Stall()
		return p.ways[leader].Resume
	}},
	{name: "the lease is stolen", want: [4]outcome{again, again, again, again}, do: func(_ *couple, leader, _ *harness.Replica) func() {
		leader.Overwrite(thief, 1)
		return nil
	}},
	{name: "the Lease is deleted", want: [4]outcome{again, again, again, again}, do: func(p *couple, leader, _ *harness.Replica) func() {
		if err := leader.Leases().Delete(p.Context(), harness.LeaseName, metav1.DeleteOptions{}); err != nil {
			p.Fatal(err)
		}
		return nil
	}},
	{name: "etcd is killed, and back after a lease", want: [4]outcome{again, again, kept, again}, do: func(p *couple, _, _ *harness.Replica) func() {
		p.etcd.Kill()
		time.Sleep(p.shard.Timings.Lease)
		p.etcd.Start(p.T)
		return nil
	}},
	{name: "asked to step down, and a controller hangs", want: [4]outcome{taken, taken, none, taken}, do: func(p *couple, leader, _ *harness.Replica) func() {
		mend := p.breaks(leader, "hangs")
		leader.StepDown("to see whether it can")
		return mend
	}},
	{name: "a controller fails", want: [4]outcome{taken, taken, taken, taken}, do: func(p *couple, leader, _ *harness.Replica) func() {
		return p.breaks(leader, "fails")
	}},
}

// thief is a holder that is no replica.
const thief = "a stranger"

// terminate asks the leader to stop, and then starts it again.
func terminate(_ *couple, leader, _ *harness.Replica) (mend func()) {
	leader.Signal(syscall.SIGTERM)
	return func() { leader.Wait(); leader.Again(); leader.WaitReady() }
}

// happensIn says whether a fault, the n-th, happens in a mode, the i-th: in each where what follows is not the same,
// and else in one of them.
func happensIn(n, i int, want [4]outcome) bool {
	return *all || want != [4]outcome{want[0], want[0], want[0], want[0]} || n%len(modes) == i
}

// I1 to I4, I8, whatever the mode. It is slow because the faults happen one after the other, and several last for a
// lease: what one leaves behind must not matter to the next.
func TestEveryFaultInEveryMode(t *testing.T) {
	t.Parallel()
	for i, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			etcd := harness.StartEtcd(t)
			shard := harness.NewShard("")
			shard.Binary, shard.Timings, shard.Args = harness.Program(t, "faulty"), faultyTimings, []string{"--writer=fenced", "--writer-pause=" + calmWriter.String(), "--faults=hangs,fails"}
			shard.Mode, shard.OneMachine = mode, true
			p := &couple{T: t, shard: shard, etcd: etcd, ways: map[*harness.Replica]*harness.Way{}, whole: map[*harness.Replica]string{}}
			for _, name := range []string{"a", "b"} {
				way, whole := etcd.Way(t), filepath.Join(t.TempDir(), "whole")
				p.makeWhole(whole + ".hangs")
				p.makeWhole(whole + ".fails")
				r := shard.Start(t, name, "--etcd-servers="+way.URL, "--mended="+whole)
				p.both, p.ways[r], p.whole[r] = append(p.both, r), way, whole
			}
			for n, fault := range modeFaults {
				if !happensIn(n, i, fault.want) {
					continue
				}
				if fault.before != nil {
					_, standby := p.roles()
					fault.before(p, standby)
				}
				p.suffer(fault.name, fault.want[i], fault.do)
				leader, _ := p.roles()
				name := fmt.Sprintf("after-%d", n)
				leader.CreateWorkspace(name)
				leader.WaitWorkspace(name)
			}
		})
	}
}

// suffer does a fault to the leader, and waits for what must come of it.
func (p *couple) suffer(fault string, want outcome, do func(p *couple, leader, standby *harness.Replica) (mend func())) {
	p.Helper()
	leader, standby := p.roles()
	before := leader.Lease()
	terms := len(leader.Terms())
	began := time.Now()
	mend := do(p, leader, standby)
	switch want {
	case taken:
		harness.Eventually(p.T, fault+": "+string(taken), standby.Leads)
	case again:
		harness.Eventually(p.T, fault+": "+string(again), func() bool {
			for _, r := range p.both {
				if lease, err := r.Leases().Get(p.Context(), harness.LeaseName, metav1.GetOptions{}); err == nil && r.Leads() {
					// by presence, a process that leads again is the same holder
					return harness.Holder(lease) != thief && !sameTerm(lease, before)
				}
			}
			return false
		})
	case none:
		// A request to step down is answered before the term ends.
		harness.Eventually(p.T, fault+": the term ends", func() bool { return !leader.Leads() })
		harness.Throughout(p.T, p.shard.Timings.Lease+2*time.Second, fault+": "+string(none), func() bool { return !standby.Leads() && !leader.Leads() })
	case kept:
		harness.Throughout(p.T, p.shard.Timings.Lease+2*time.Second, fault+": nobody else leads", func() bool { return !standby.Leads() })
	}
	p.Logf("%-40s %s after %v", fault, want, time.Since(began).Round(time.Millisecond))
	if mend != nil {
		mend()
	}
	if want == kept {
		harness.Eventually(p.T, fault+": it serves again", func() bool { return leader.Status("/readyz") == 200 })
		if now := leader.Terms(); len(now) != terms || now[terms-1].Reason != "" || !leader.Leads() {
			p.Errorf("%s: its terms are %v, want the last of %d to go on", fault, now, terms)
		}
		if now := leader.Lease(); harness.Holder(now) != harness.Holder(before) || *now.Spec.LeaseTransitions != *before.Spec.LeaseTransitions {
			p.Errorf("%s: the Lease shows another term", fault)
		}
	}
}
