package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I1, I4, I5. It is slow because after each of twenty losses a term is waited for, and a workspace that comes and goes
// in it.
func TestALeaderThatLosesItsLeaseTwentyTimesLeadsAsTheFirstTime(t *testing.T) {
	t.Parallel() // most of it is waiting
	const losses = 20
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default // each term is to end because the lease is lost, and not before
	r := shard.Start(t, "a")
	r.WaitRoot()
	pid := r.PID()
	user := ask(t, r)

	var first, last harness.Footprint
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
		if term := r.Terms()[terms-1]; !term.Deposed() {
			t.Errorf("loss %d: the term ended because of %q", n, term.Reason)
		}
		if took > harness.Patience/6 {
			t.Errorf("loss %d: the controllers stopped after %v, promised is a second on a machine that is not busy", n, took)
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
			first = harness.FootprintOf(r)
		}
	}
	last = harness.FootprintOf(r)
	t.Logf("after  1 loss:   %d goroutines, %d open files and connections, %d KiB of heap", first.Goroutines, first.Descriptors, first.Heap>>10)
	t.Logf("after %d losses: %d goroutines, %d open files and connections, %d KiB of heap", losses, last.Goroutines, last.Descriptors, last.Heap>>10)
	t.Logf("slowest to stop: %v", slowest.Round(time.Millisecond))
	user.mustHaveSucceeded(t)

	if r.PID() != pid || !r.Alive() {
		t.Error("the process has changed")
	}
	// A leak of one goroutine per term would show as 19. A few are the server's own, which come and go with
	// requests.
	if last.Goroutines > first.Goroutines+losses/4 {
		t.Errorf("%d goroutines, %d after the first loss", last.Goroutines, first.Goroutines)
	}
	// A term has at least one connection of its own.
	if last.Descriptors > first.Descriptors+losses/4 {
		t.Errorf("%d open files and connections, %d after the first loss", last.Descriptors, first.Descriptors)
	}
	// The watch caches keep what happened lately, a few MiB of it. A term's informers, were they kept, would be
	// more.
	if last.Heap > first.Heap+5<<20 {
		t.Errorf("%d KiB of heap, %d after the first loss", last.Heap>>10, first.Heap>>10)
	}
	if lease := r.Lease(); ptr.Deref(lease.Spec.LeaseTransitions, 0) < losses {
		t.Errorf("epoch %d after %d losses: it must grow across deletions too", ptr.Deref(lease.Spec.LeaseTransitions, 0), losses)
	}
}
