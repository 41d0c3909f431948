package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// I1 to I3, I8: no time takes the lease from a leader for life, and its death gives it away at once.
func TestALeaderForLifeLeadsOnAfterAPauseAndIsSucceededWhenItIsKilled(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	recorder := history.Record(t, etcd.Client(t), "/registry")
	shard := harness.NewShard(etcd.URL)
	shard.Binary, shard.Args = harness.Program(t, "faulty"), []string{"--writer=fenced"}
	shard.Mode, shard.OneMachine = harness.ForLife, true // where a killed process is known to be dead
	a := shard.Start(t, "a")
	harness.Eventually(t, "it leads", a.Leads)
	b := shard.Start(t, "b")
	harness.Eventually(t, "the standby follows", b.Follows)
	before := a.Lease()
	if before.Spec.RenewTime != nil || len(before.OwnerReferences) != 1 {
		t.Errorf("renewed at %v, owned by %v", before.Spec.RenewTime, before.OwnerReferences)
	}

	a.Signal(syscall.SIGSTOP)
	harness.Throughout(t, 4*shard.Timings.Lease, "nobody takes the lease of a paused leader", func() bool { return !b.Leads() })
	if v, _ := b.Metric(`regent_election_leader_unaccounted{name="regent-controllers"}`); v != 1 {
		t.Errorf("the standby's metric of a leader that is not heard is %v", v)
	}
	a.Signal(syscall.SIGCONT)
	a.CreateWorkspace("after-the-pause")
	a.WaitWorkspace("after-the-pause")
	if terms := a.Terms(); len(terms) != 1 || terms[0].Reason != "" {
		t.Errorf("the terms of who was paused: %v, want one that goes on", terms)
	}
	harness.Eventually(t, "the leader is heard again", func() bool {
		v, _ := b.Metric(`regent_election_leader_unaccounted{name="regent-controllers"}`)
		return v == 0
	})

	takeovers := b.Takeovers()
	a.Kill()
	harness.Eventually(t, "the standby leads", b.Leads)
	harness.Eventually(t, "the takeover is counted", func() bool { return len(b.TriggersSince(takeovers)) > 0 })
	if triggers := b.TriggersSince(takeovers); len(triggers) != 1 || triggers[0] != "death" {
		t.Errorf("it took over because of %v", triggers)
	}
	t.Log(b.Lines(`"Takeover"`))
	b.CreateWorkspace("after-the-kill")
	b.WaitWorkspace("after-the-kill")

	b.Signal(syscall.SIGTERM)
	b.Wait()
	judge(t, recorder.Finish(t), 2)
}

// A node that is gone cannot be told from one that is cut off: an operator has to say which. Whatever is said, one
// writes.
func TestALeaderForLifeThatIsCutOffIsWaitedForUntilAnOperatorForgetsIt(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	recorder := history.Record(t, etcd.Client(t), "/registry")
	shard := harness.NewShard("")
	shard.Binary, shard.Args = harness.Program(t, "faulty"), []string{"--writer=fenced"}
	shard.Mode, shard.OneMachine = harness.ForLife, false
	ways := map[*harness.Replica]*harness.Way{}
	start := func(name string) *harness.Replica {
		way := etcd.Way(t)
		r := shard.Start(t, name, "--etcd-servers="+way.URL)
		ways[r] = way
		return r
	}
	a := start("a")
	harness.Eventually(t, "it leads", a.Leads)
	b := start("b")
	harness.Eventually(t, "the standby follows", b.Follows)

	ways[a].Stall() // with writes under way
	a.Signal(syscall.SIGSTOP)
	var told corev1.Event
	harness.Eventually(t, "an Event says how to free the lease", func() bool {
		events, err := b.Kube("system:admin").CoreV1().Events(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, event := range events.Items {
			if event.Reason == "LeaderUnaccounted" {
				told = event
				return true
			}
		}
		return false
	})
	if b.Leads() {
		t.Fatal("it took the lease of a leader that may live")
	}
	_, command, ok := strings.Cut(told.Message, "If it is gone for good: regent ")
	if !ok || told.Type != corev1.EventTypeWarning || told.InvolvedObject.Name != harness.LeaseName {
		t.Fatalf("a %s about %s says %q", told.Type, told.InvolvedObject.Name, told.Message)
	}
	forget := func(args ...string) (string, error) {
		cmd := harness.Command(t, "regent", args...)
		// as README has it exported
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(b.Root, "admin.kubeconfig"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := forget("forget-replica", "nobody"); err == nil || !strings.Contains(out, "no such replica") {
		t.Errorf("of a replica that never was it says %q, %v", out, err)
	}
	takeovers := b.Takeovers()
	if out, err := forget(strings.Fields(command)...); err != nil {
		t.Fatalf("regent %s: %v\n%s", command, err, out)
	}
	harness.Eventually(t, "the standby leads", b.Leads)
	harness.Eventually(t, "the takeover is counted", func() bool { return len(b.TriggersSince(takeovers)) > 0 })
	if triggers := b.TriggersSince(takeovers); len(triggers) != 1 || triggers[0] != "owner-deleted" {
		t.Errorf("it took over because of %v", triggers)
	}
	b.CreateWorkspace("after")
	b.WaitWorkspace("after")

	a.Signal(syscall.SIGCONT)
	ways[a].Resume()
	harness.Eventually(t, "who was forgotten and lives finds out", func() bool { return a.Terms()[0].Reason != "" })
	harness.Eventually(t, "it can succeed", func() bool { return a.Status("/readyz") == 200 && a.Follows() })
	b.Kill() // it has another root directory: its death is not certain either
	harness.Throughout(t, 2*shard.Timings.Lease, "nobody leads", func() bool { return !a.Leads() })
	b.Again()
	harness.Eventually(t, "who was killed is back, and knows that it is dead", b.Leads)
	b.Signal(syscall.SIGTERM)
	b.Wait()
	harness.Eventually(t, "the other leads when it has stopped in order", a.Leads)
	a.Signal(syscall.SIGTERM)
	a.Wait()
	judge(t, recorder.Finish(t), 4)
}

// judge holds etcd's history against I2 and I3, and the number of terms in it against want.
func judge(t *testing.T, events []history.Event, want int) {
	t.Helper()
	spans := history.Terms(events, leaseOf)
	if len(spans) != want || len(history.Twice(spans)) > 0 {
		t.Errorf("%d terms, want %d; twice: %q", len(spans), want, history.Twice(spans))
	}
	if stale, backwards := history.Stale(events, spans), history.Backwards(events, spans); len(stale) > 0 || len(backwards) > 0 {
		t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q", stale, backwards)
	}
	t.Logf("%d terms, %d changes", len(spans), len(events))
}
