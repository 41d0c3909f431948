package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// faultyBinary returns the server with controllers that misbehave.
func faultyBinary(t *testing.T) string {
	t.Helper()
	binary, err := buildFaulty()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

var buildFaulty = sync.OnceValues(func() (string, error) {
	return harness.BuildGo(filepath.Dir(harness.Binary("regent")), "./test/e2e/faulty")
})

// startFaulty starts a replica with controllers that misbehave until mend is called, in a shard of its own; sound
// replicas can join it.
func startFaulty(t *testing.T, faults string, args ...string) (shard *harness.Shard, r *harness.Replica, mend func()) {
	t.Helper()
	shard = harness.NewShard(harness.StartEtcd(t).URL)
	shard.Binary = faultyBinary(t)
	mended := filepath.Join(t.TempDir(), "mended")
	r = shard.Start(t, "faulty", append(args, "--faults="+faults, "--mended="+mended)...)
	return shard, r, func() {
		if err := os.WriteFile(mended, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// I7.
func TestAReplicaWhoseControllersFailLeavesTheLeaseToOthersAndLivesOn(t *testing.T) {
	for fault, said := range map[string]struct{ message, err string }{
		"panics":             {"Controller panicked", "so it panics"},
		"fails":              {"Controller failed", "so it fails"},
		"constructor-panics": {"Controller panicked", "so it panics when made"},
		"constructor-fails":  {"Controller failed", "so it cannot be made"},
	} {
		t.Run(fault, func(t *testing.T) {
			shard, faulty, mend := startFaulty(t, fault)
			harness.Eventually(t, "it has failed twice", func() bool {
				terms := faulty.Terms()
				return len(terms) > 1 && terms[1].Reason != ""
			})
			// Between attempts nobody holds the lease.
			harness.Eventually(t, "the lease is free", func() bool { return harness.Holder(faulty.Lease()) == "" })
			began, attempts := time.Now(), len(faulty.Terms())

			sound := shard.Start(t, "sound", "--faults=")
			harness.Eventually(t, "the sound replica leads", sound.Leads)
			t.Logf("%d attempts before, %v from the sound replica's start to leading", attempts, time.Since(began).Round(time.Millisecond))
			faulty.CreateWorkspace("during")
			sound.WaitWorkspace("during")

			for _, term := range faulty.Terms() {
				if term.Reason != "failed" {
					t.Errorf("term %s ended because of %q", term.Epoch, term.Reason)
				}
			}
			if len(faulty.Lines(said.message, said.err, `controller="`+fault+`"`)) == 0 {
				t.Errorf("the log does not say that %q happened, with %q and the controller's name", said.message, said.err)
			}
			if !faulty.Alive() || faulty.Status("/livez") != 200 || faulty.Status("/readyz") != 200 {
				t.Error("the replica with the fault should live, and serve")
			}

			mend()
			sound.Signal(syscall.SIGTERM)
			if code := sound.Wait(); code != 0 {
				t.Errorf("the sound replica ended with %d", code)
			}
			harness.Eventually(t, "the mended replica leads", faulty.Leads)
			faulty.CreateWorkspace("mended")
			faulty.WaitWorkspace("mended")
			faulty.Terms()
		})
	}
}

// I1, I6.
func TestAReplicaWhoseControllerHangsIsQuarantinedUntilItReturns(t *testing.T) {
	for name, c := range map[string]struct {
		faults string
		end    func(t *testing.T, faulty *harness.Replica) // how the term ends, if not by itself
		reason string
	}{
		// One fails, so the term ends; the other does not notice.
		"another fails": {"hangs,fails", func(*testing.T, *harness.Replica) {}, "failed"},
		// The stranger is never seen again, so the lease could be won from the second after.
		"deposed": {"hangs", func(t *testing.T, faulty *harness.Replica) {
			harness.Leader(t, faulty)
			faulty.Overwrite("stranger", 1)
		}, "deposed"},
	} {
		t.Run(name, func(t *testing.T) {
			shard, faulty, mend := startFaulty(t, c.faults)
			c.end(t, faulty)
			harness.Eventually(t, "it is quarantined", func() bool { return len(faulty.Lines("Quarantined")) == 1 })
			harness.Eventually(t, "the log names the late controller", func() bool { return len(faulty.Lines("Controller is late", `controller="hangs"`)) == 1 })
			if !strings.Contains(faulty.Log(), "main.fault.Run") {
				t.Error("the log does not show where the late controller hangs")
			}
			if holder := harness.Holder(faulty.Lease()); holder == "" {
				t.Error("the lease is released although a controller still works")
			}
			// Long enough for the lease to expire.
			harness.Throughout(t, shard.Timings.Lease, "it does not stand for election", func() bool { return !faulty.Leads() && len(faulty.Terms()) == 1 })

			began := time.Now()
			sound := shard.Start(t, "sound", "--faults=")
			harness.Eventually(t, "the sound replica leads", sound.Leads)
			t.Logf("lease %v, %v from the sound replica's start to leading", shard.Timings.Lease, time.Since(began).Round(time.Millisecond))
			faulty.CreateWorkspace("during")
			sound.WaitWorkspace("during")
			if faulty.Leads() || faulty.Status("/livez") != 200 || faulty.Status("/readyz") != 200 {
				t.Error("want a replica that serves and does not lead")
			}
			if terms := faulty.Terms(); len(terms) != 1 || terms[0].Reason != c.reason {
				t.Errorf("terms %v, want one that has ended because of %q", terms, c.reason)
			}

			mend()
			harness.Eventually(t, "the late controller's return is logged", func() bool { return len(faulty.Lines("Late controllers have returned", "hangs")) == 1 })
			sound.Signal(syscall.SIGTERM)
			if code := sound.Wait(); code != 0 {
				t.Errorf("the sound replica ended with %d", code)
			}
			harness.Eventually(t, "it leads again", faulty.Leads)
			faulty.CreateWorkspace("after")
			faulty.WaitWorkspace("after")
			faulty.Terms()
		})
	}
}

// I6.
func TestAReplicaThatIsAskedToStopWhileAControllerHangsNamesItAndFails(t *testing.T) {
	_, faulty, _ := startFaulty(t, "hangs", "--shutdown-timeout=5s")
	harness.Leader(t, faulty)
	faulty.WaitRoot()
	began := time.Now()
	faulty.Signal(syscall.SIGTERM)
	code := faulty.Wait()
	t.Logf("exit code %d after %v", code, time.Since(began).Round(time.Millisecond))
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if len(faulty.Lines("faulty: not stopped after 5s", `controller "hangs"`)) != 1 {
		t.Error("the last words do not name the late controller")
	}
	if len(faulty.Lines("Controller is late", `controller="hangs"`)) != 1 {
		t.Error("the log does not name the late controller")
	}
}
