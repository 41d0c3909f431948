package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
)

// footprint is what a replica has open while it leads.
type footprint struct{ goroutines, handlers, heap, descriptors int }

// footprintOf takes the smallest of several looks: watches time out and come back, requests come and go.
func footprintOf(r *harness.Replica) footprint {
	var least footprint
	for n := range 10 {
		var now footprint
		// Upstream's watch cache leaves a timer of 3 s behind for every read that waited for it: as many as there were
		// requests lately, and none of a term's.
		all, timers := r.Goroutines("cacher.(*watchCache).waitUntilFreshLocked")
		now.goroutines = all - timers
		// An event handler is a goroutine that delivers.
		_, now.handlers = r.Goroutines("clusters.(*subscription[")
		now.heap, now.descriptors = r.Heap(), r.Descriptors()
		if n == 0 {
			least = now
		}
		least = footprint{
			min(least.goroutines, now.goroutines), min(least.handlers, now.handlers),
			min(least.heap, now.heap), min(least.descriptors, now.descriptors),
		}
	}
	return least
}

// I1, I4, I5.
func TestALeaderThatLosesItsLeaseTwentyTimesLeadsAsTheFirstTime(t *testing.T) {
	const losses = 20
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	r := shard.Start(t, "a")
	r.WaitRoot()
	pid := r.PID()
	user := ask(t, r)

	var first, last footprint
	var slowest time.Duration
	for n := range losses {
		terms := len(r.Terms())
		if n%2 == 0 {
			r.Overwrite(fmt.Sprintf("somebody-else-%d", n), 1)
		} else if err := r.Leases().Delete(t.Context(), harness.LeaseName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		// The log tells, even if the next term begins before anybody could look at a gauge.
		harness.Eventually(t, "the term ends", func() bool { return r.Terms()[terms-1].Reason != "" })
		took := time.Since(began)
		slowest = max(slowest, took)
		if reason := r.Terms()[terms-1].Reason; reason != "deposed" {
			t.Errorf("loss %d: the term ended because of %q", n, reason)
		}
		if took > time.Second {
			t.Errorf("loss %d: the controllers stopped after %v, promised is a second", n, took)
		}
		harness.Eventually(t, "it leads again", func() bool { return len(r.Terms()) > terms && r.Leads() })
		name := fmt.Sprintf("after-%d", n)
		r.CreateWorkspace(name)
		r.WaitWorkspace(name)
		// Without its workspaces the process is comparable: what it caches is not what it leaks.
		if err := r.Dynamic("root").Resource(harness.Workspaces).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, name+" is gone", func() bool {
			list, err := r.Dynamic("root").Resource(harness.Workspaces).List(t.Context(), metav1.ListOptions{})
			return err == nil && len(list.Items) == 0
		})
		if n == 0 {
			first = footprintOf(r)
		}
	}
	last = footprintOf(r)
	t.Logf("after  1 loss:   %d goroutines, %d event handlers, %d open files and connections, %d KiB of heap", first.goroutines, first.handlers, first.descriptors, first.heap>>10)
	t.Logf("after %d losses: %d goroutines, %d event handlers, %d open files and connections, %d KiB of heap", losses, last.goroutines, last.handlers, last.descriptors, last.heap>>10)
	t.Logf("slowest to stop: %v", slowest.Round(time.Millisecond))
	user.mustHaveSucceeded(t)

	if r.PID() != pid || !r.Alive() {
		t.Error("the process has changed")
	}
	if last.handlers != first.handlers || first.handlers == 0 {
		t.Errorf("%d event handlers, %d after the first loss", last.handlers, first.handlers)
	}
	// A leak of one goroutine per term would show as 19. A few are the server's own, which come and go with requests.
	if last.goroutines > first.goroutines+losses/4 {
		t.Errorf("%d goroutines, %d after the first loss", last.goroutines, first.goroutines)
	}
	// A term has at least one connection of its own.
	if last.descriptors > first.descriptors+losses/4 {
		t.Errorf("%d open files and connections, %d after the first loss", last.descriptors, first.descriptors)
	}
	// The watch caches keep what happened lately, a few MiB of it. A term's informers, were they kept, would be more.
	if last.heap > first.heap+5<<20 {
		t.Errorf("%d KiB of heap, %d after the first loss", last.heap>>10, first.heap>>10)
	}
	if lease := r.Lease(); ptr.Deref(lease.Spec.LeaseTransitions, 0) < losses {
		t.Errorf("epoch %d after %d losses: it must grow across deletions too", ptr.Deref(lease.Spec.LeaseTransitions, 0), losses)
	}
}
