package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

func TestReplicasOutliveAnEtcdThatIsAwayLongerThanTheRenewDeadline(t *testing.T) {
	t.Parallel() // most of it is waiting
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *harness.Etcd)
	}{
		"paused": {
			func(_ *testing.T, e *harness.Etcd) { e.Signal(syscall.SIGSTOP) },
			func(_ *testing.T, e *harness.Etcd) { e.Signal(syscall.SIGCONT) },
		},
		"killed": {
			func(_ *testing.T, e *harness.Etcd) { e.Kill() },
			func(t *testing.T, e *harness.Etcd) { e.Start(t) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := harness.StartEtcd(t)
			shard := harness.NewShard(etcd.URL).Renewed()
			replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
			leader, _ := harness.Leader(t, replicas...)
			leader.WaitRoot()
			pids := [2]int{replicas[0].PID(), replicas[1].PID()}
			live := watchLiveness(replicas...)

			began := time.Now()
			fault.begin(t, etcd)
			harness.Eventually(t, "the term ends", func() bool { return leader.Terms()[0].Reason != "" })
			t.Logf("the term ended %v after etcd did not answer any more, because of %q", time.Since(began).Round(time.Millisecond), leader.Terms()[0].Reason)
			for _, r := range replicas {
				harness.Eventually(t, "a replica is not ready without etcd", func() bool { return r.Status("/readyz") == http.StatusInternalServerError })
				if r.Leads() {
					t.Error("a replica says that it leads without etcd")
				}
			}
			fault.end(t, etcd)
			began = time.Now()

			for _, r := range replicas {
				r.WaitReady()
			}
			harness.Leader(t, replicas...)
			t.Logf("etcd back to leading: %v", time.Since(began).Round(time.Millisecond))
			for i, r := range replicas {
				name := fmt.Sprintf("after-%d", i)
				r.CreateWorkspace(name)
				r.WaitWorkspace(name)
			}
			harness.Leader(t, replicas...)
			live.mustHaveBeenOK(t)
			for i, r := range replicas {
				r.Terms()
				if !r.Alive() || r.PID() != pids[i] {
					t.Error("a process has ended")
				}
			}
		})
	}
}

// liveness is what /livez of some replicas said.
type liveness struct {
	stop   chan struct{}
	asking sync.WaitGroup

	mu      sync.Mutex
	asked   int
	slowest time.Duration
	wrong   []string
}

// watchLiveness asks until it is told to stop.
func watchLiveness(replicas ...*harness.Replica) *liveness {
	l := &liveness{stop: make(chan struct{})}
	for _, r := range replicas {
		r.Status("/livez") // makes the client that Get uses
		l.asking.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for {
				began := time.Now()
				status, body := r.Get("/livez")
				l.note(status, body, time.Since(began))
				select {
				case <-l.stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	return l
}

func (l *liveness) note(status int, body string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	l.slowest = max(l.slowest, took)
	if status != http.StatusOK {
		l.wrong = append(l.wrong, fmt.Sprint(status, body))
	}
}

func (l *liveness) mustHaveBeenOK(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.asking.Wait()
	t.Logf("/livez: asked %d times, slowest answer %v", l.asked, l.slowest.Round(time.Millisecond))
	if len(l.wrong) > 0 {
		t.Errorf("/livez was wrong %d times, first: %s", len(l.wrong), l.wrong[0])
	}
}

func TestALoneReplicaThatIsKilledLeadsAgainWhenItIsReadyAgain(t *testing.T) {
	for name, etcd := range map[string]func(*testing.T) string{
		"external etcd": func(t *testing.T) string { return harness.StartEtcd(t).URL },
		"embedded etcd": func(*testing.T) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			shard := harness.NewShard(etcd(t))
			shard.Timings = harness.Default // waiting for the expiry would take 15 s
			r := shard.Start(t, "a")
			harness.Leader(t, r)
			r.WaitRoot()
			r.CreateWorkspace("before")
			r.WaitWorkspace("before")
			r.Kill()

			began := time.Now()
			r.Again()
			r.WaitReady()
			ready := time.Since(began)
			harness.Eventually(t, "it leads again", r.Leads)
			leads := time.Since(began)
			t.Logf("ready %v after the start, leading %v after that", ready.Round(time.Millisecond), (leads - ready).Round(time.Millisecond))
			// The promise is a second. A loaded machine may be late, but not as late as the lease's expiry.
			if leads-ready > shard.Timings.Lease*2/3 || len(r.Lines(`"Leading"`, "/"+harness.LeaseName, "expired")) > 0 {
				t.Errorf("leading %v after being ready: %q", leads-ready, r.Lines(`"Leading"`))
			}
			r.CreateWorkspace("after")
			r.WaitWorkspace("after")
			r.WaitWorkspace("before")
		})
	}
}

func TestAVanishedHolderCostsOneLeaseDuration(t *testing.T) {
	t.Parallel() // most of it is waiting
	const lease = 6 * time.Second
	newShard := func(t *testing.T) *harness.Shard {
		shard := harness.NewShard(harness.StartEtcd(t).URL).Renewed()
		shard.Timings.Lease = lease
		return shard
	}
	mustLeadInTime := func(t *testing.T, r *harness.Replica) {
		t.Helper()
		// It has to see the Lease unchanged for its duration. How long its start takes does not count.
		r.WaitReady()
		began := time.Now()
		harness.Eventually(t, "the fresh replica leads", r.Leads)
		took := time.Since(began)
		t.Logf("lease %v, ready to leading %v", lease, took.Round(time.Millisecond))
		if took >= 2*lease {
			t.Errorf("leading after %v, that is two leases of %v", took, lease)
		}
		r.WaitRoot()
		r.CreateWorkspace("after")
		r.WaitWorkspace("after")
	}
	t.Run("a replica of another machine", func(t *testing.T) {
		shard := newShard(t)
		gone := shard.Start(t, "gone")
		harness.Leader(t, gone)
		gone.Kill()
		fresh := shard.Launch(t, "fresh")
		mustLeadInTime(t, fresh)
	})
	t.Run("a stranger whose lease expired long ago", func(t *testing.T) {
		shard := newShard(t)
		// It stands for another lease, and stops before anybody stands for this one.
		writer := shard.Start(t, "writer", "--leader-election-name=another")
		stranger, seconds, epoch := "stranger", int32(lease/time.Second), int32(7)
		long := metav1.NewMicroTime(time.Now().Add(-time.Hour))
		expired := newLease(stranger, seconds, epoch, long)
		if _, err := writer.Leases().Create(t.Context(), expired, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		writer.Signal(syscall.SIGTERM)
		if code := writer.Wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		fresh := shard.Launch(t, "fresh")
		mustLeadInTime(t, fresh)
		// It may lose its lease on a busy machine, and take it again.
		if terms := fresh.Terms(); len(terms) == 0 || terms[0].Epoch != "8" {
			t.Errorf("terms %v, want the first to be of epoch 8", terms)
		}
	})
}

func newLease(holder string, seconds, epoch int32, renewed metav1.MicroTime) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: harness.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &epoch, AcquireTime: &renewed, RenewTime: &renewed,
		},
	}
}
