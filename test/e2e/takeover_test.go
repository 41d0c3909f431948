package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

func TestTwoReplicasOneLeadsAndBothServe(t *testing.T) {
	t.Parallel() // most of it is waiting
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default // a short lease would be lost on a machine that is busy for two seconds
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()

	a.CreateWorkspace("through-a")
	b.CreateWorkspace("through-b")
	for _, r := range []*harness.Replica{a, b} {
		for _, name := range []string{"through-a", "through-b"} {
			r.WaitWorkspace(name)
		}
	}
	list := func(r *harness.Replica) (all []string) {
		list, err := r.Dynamic("root").Resource(harness.Workspaces).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list.Items {
			all = append(all, fmt.Sprint(w.GetName(), w.GetUID(), w.GetResourceVersion()))
		}
		return all
	}
	harness.Eventually(t, "both replicas list the same two objects", func() bool {
		fromA, fromB := list(a), list(b)
		return slices.Equal(fromA, fromB) && len(fromA) == 2
	})
	harness.Throughout(t, shard.Timings.Lease+2*time.Second, "one leads, and the other does not", func() bool { return a.Leads() != b.Leads() })
	if terms := append(a.Terms(), b.Terms()...); len(terms) != 1 || terms[0].Reason != "" {
		t.Errorf("terms %v, want one that goes on", terms)
	}
}

// client is a user who keeps asking one replica for things.
type client struct {
	stop     context.CancelFunc
	asking   sync.WaitGroup
	requests int
	failed   []error
}

// pause is how long that user waits after an answer. Without a pause one user keeps a CPU busy all the time, and two
// hundred requests a second miss nothing that goes on for longer than it takes to make one.
const pause = 5 * time.Millisecond

// ask reads, lists and writes in root through r until stopped.
func ask(t *testing.T, r *harness.Replica) *client {
	ctx, cancel := context.WithCancel(t.Context())
	c := &client{stop: cancel}
	kube := r.Kube("root").CoreV1()
	c.asking.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			var err error
			switch {
			case n%2 == 0:
				_, err = kube.Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
			case n%25 != 0:
				_, err = kube.ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			default: // seldom: the watch cache remembers what was written
				_, err = kube.ConfigMaps(metav1.NamespaceDefault).Patch(ctx, "asked", "application/apply-patch+yaml",
					fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"asked"},"data":{"n":"%d"}}`, n), metav1.PatchOptions{FieldManager: "e2e"})
			}
			if err == nil {
				c.requests++
			} else if ctx.Err() == nil {
				c.failed = append(c.failed, err)
			}
			time.Sleep(pause)
		}
	})
	return c
}

// mustHaveSucceeded stops the client; none of its requests may have failed.
func (c *client) mustHaveSucceeded(t *testing.T) {
	t.Helper()
	c.stop()
	c.asking.Wait()
	if len(c.failed) > 0 || c.requests == 0 {
		t.Errorf("%d requests succeeded, %d failed, the first with: %v", c.requests, len(c.failed), append(c.failed, nil)[0])
	}
}

// I8, I4.
func TestWhatWasPendingWhenTheLeaderWasKilledIsDoneByTheNext(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default // the survivor is to lead in one term
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, others := harness.Leader(t, a, b)
	survivor := others[0]
	survivor.WaitRoot()
	user := ask(t, survivor)

	survivor.CreateWorkspace("before")
	survivor.WaitWorkspace("before")
	// What is created while the leader does not run is pending when it dies.
	leader.Signal(syscall.SIGSTOP)
	survivor.CreateWorkspace("pending")
	began := time.Now()
	leader.Kill()
	survivor.CreateWorkspace("during")
	harness.Eventually(t, "the survivor leads", survivor.Leads)
	t.Logf("kill -9 to leading, lease %v, other root directory: %v", shard.Timings.Lease, time.Since(began).Round(time.Millisecond))
	survivor.CreateWorkspace("after")
	for _, name := range []string{"before", "pending", "during", "after"} {
		survivor.WaitWorkspace(name)
	}
	user.mustHaveSucceeded(t)
	if terms := survivor.Terms(); len(terms) != 1 {
		t.Errorf("the survivor's terms: %v", terms)
	}
}

func TestALeaderThatIsAskedToStopHandsOverAtOnce(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			shard := harness.NewShard(harness.StartEtcd(t).URL)
			shard.Timings = slow
			a, b := shard.Start(t, "a"), shard.Start(t, "b")
			leader, others := harness.Leader(t, a, b)
			survivor := others[0]
			survivor.WaitRoot()
			user := ask(t, survivor)

			began := time.Now()
			leader.Signal(signal)
			// The lease lasts two minutes, and a stock candidate would look at it every twenty seconds.
			harness.EventuallyIn(t, 16*time.Second, "the other leads", survivor.Leads)
			t.Logf("%v to leading: %v", signal, time.Since(began).Round(time.Millisecond))
			if code := leader.Wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if len(leader.Lines("Stopping", `signal="`+signal.String()+`"`)) != 1 {
				t.Error("the log does not name the signal")
			}
			if terms := leader.Terms(); len(terms) != 1 || terms[0].Reason != "shutdown" {
				t.Errorf("terms of the one that stopped: %v", terms)
			}
			if len(survivor.Lines("Leader changed", "received signal")) == 0 {
				t.Error("what is left on the Lease does not name the signal")
			}
			survivor.CreateWorkspace("after")
			survivor.WaitWorkspace("after")
			user.mustHaveSucceeded(t)
		})
	}
}
