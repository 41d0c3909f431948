package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// faultyTimings leave time for a renewal on a busy machine: these terms must end because of their faults only.
var faultyTimings = harness.Timings{Lease: 5 * time.Second, Renew: 4 * time.Second, Retry: 300 * time.Millisecond}

// startFaulty starts a replica with controllers that misbehave until mend is called, in a shard of its own; sound
// replicas can join it.
func startFaulty(t *testing.T, faults string, args ...string) (shard *harness.Shard, r *harness.Replica, mend func()) {
	t.Helper()
	shard = harness.NewShard(harness.StartEtcd(t).URL).Renewed() // what hangs keeps a lease for life
	shard.Binary, shard.Timings = harness.Program(t, "faulty"), faultyTimings
	mended := filepath.Join(t.TempDir(), "mended")
	r = shard.Start(t, "faulty", append(args, "--faults="+faults, "--mended="+mended)...)
	return shard, r, func() {
		if err := os.WriteFile(mended, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// handOver has the leader step down on request, so that the other leads. Whoever has stepped down rests for a retry
// period only: if the other is not scheduled for as long, the same one leads again, and is asked again.
func handOver(t *testing.T, from, to *harness.Replica) {
	t.Helper()
	before := len(to.Terms())
	harness.Eventually(t, to.Name()+" leads", func() bool {
		if to.Leads() || len(to.Terms()) > before {
			return true
		}
		if from.Leads() {
			_ = from.TryStepDown("so that the other leads") // unless its term has just ended
		}
		return false
	})
}

// I7. It is slow because it watches for two leases that the lease is left to others, in one case after the other.
func TestAReplicaWhoseControllersFailLeavesTheLeaseToOthersUntilItIsMended(t *testing.T) {
	t.Parallel() // most of it is waiting
	for fault, said := range map[string]struct{ message, err string }{
		"panics":            {"Controller panicked", "so it panics"},
		"constructor-fails": {"Controller failed", "so it cannot be made"},
	} {
		t.Run(fault, func(t *testing.T) {
			shard, faulty, mend := startFaulty(t, fault, "--controller-failure-policy=step-down")
			harness.Eventually(t, "the faulty one leads first", func() bool { return len(faulty.Terms()) > 0 })
			sound := shard.Start(t, "sound", "--faults=")
			// The first term fails. If the sound one was not there yet, the second leads on without the
			// controller.
			harness.Eventually(t, "it has failed", func() bool { return faulty.Terms()[0].Reason != "" })
			harness.Eventually(t, "one leads again", func() bool { return faulty.Leads() || sound.Leads() })
			handOver(t, faulty, sound)
			harness.Eventually(t, "the sound replica leads", sound.Leads)
			faulty.CreateWorkspace("during")
			sound.WaitWorkspace("during")
			before := len(faulty.Terms())
			harness.Throughout(t, 2*shard.Timings.Lease, "the sound replica leads", func() bool { return sound.Leads() && !faulty.Leads() })
			if n := len(faulty.Terms()); n != before {
				t.Errorf("the faulty one took the lease back: %d terms, then %d", before, n)
			}
			if terms := faulty.Terms(); terms[0].Reason != "failed" {
				t.Errorf("terms %v, want the first to have failed", terms)
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

// I7: one leads on without what it cannot run, whether all fail at the same or each at something else.
func TestAShardWhoseReplicasAllFailHasALeaderWithoutWhatItCannotRun(t *testing.T) {
	t.Parallel() // most of it is waiting
	for name, faults := range map[string][2]string{"same": {"fails", "fails"}, "different": {"fails", "panics"}} {
		t.Run(name, func(t *testing.T) {
			mended := filepath.Join(t.TempDir(), "mended")
			shard := harness.NewShard(harness.StartEtcd(t).URL)
			shard.Binary, shard.Timings = harness.Program(t, "faulty"), faultyTimings
			shard.Args = []string{"--controller-failure-policy=step-down", "--mended=" + mended}
			replicas := []*harness.Replica{shard.Start(t, "a", "--faults="+faults[0]), shard.Start(t, "b", "--faults="+faults[1])}
			var leader, other *harness.Replica
			harness.Eventually(t, "one leads on", func() bool {
				for i, r := range replicas {
					if len(r.Lines("Leading on although these controllers fail", faults[i])) > 0 && r.Leads() {
						leader, other = r, replicas[1-i]
					}
				}
				return leader != nil
			})
			fault := faults[slices.Index(replicas, leader)]
			harness.Eventually(t, "the controller is shown as failed", func() bool {
				failed, _ := leader.Metric(`regent_controller_state{controller="` + fault + `",state="failed"}`)
				return failed == 1
			})
			other.CreateWorkspace("anyway")
			leader.WaitWorkspace("anyway")
			harness.Throughout(t, shard.Timings.Lease, "it leads", leader.Leads)
			harness.Eventually(t, "the Lease's Events tell", func() bool {
				out := leader.Kubectl("system:admin", "describe", "lease", "-n", "kube-system", harness.LeaseName)
				return strings.Contains(out, "ControllerFailed") && strings.Contains(out, "cannot run controller") && strings.Contains(out, "TermFailed")
			})
			if err := os.WriteFile(mended, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			harness.EventuallyIn(t, 3*harness.Patience, "the controller runs", func() bool {
				running, _ := leader.Metric(`regent_controller_state{controller="` + fault + `",state="running"}`)
				return running == 1
			})
			for _, r := range replicas {
				t.Logf("terms of %s: %v", r.Name(), r.Terms())
			}
		})
	}
}

// TestEveryFaultUnderEveryPolicy has, for each policy, a sound replica and one after the other with each fault. It is
// slow because each fault takes a replica's start, a hand over and the way back, and those that hang a drain timeout
// and a lease, too.
func TestEveryFaultUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	const (
		nothing = "goes on"    // the term does
		moves   = "steps down" // the sound one leads, the process lives
		ends    = "exits"      // the sound one leads, the process has ended with 1
		waits   = "is quarantined at the end of the term"
	)
	// once are the faults that happen under one policy only, unless -all: what they come to is the same under each,
	// or what another fault's does. The table is the supervisor's (TestTheDocumentedTable).
	once := map[string]string{"panics": "exit", "stalls-and-hangs": "step-down", "starts-slowly": "restart", "steps-down": "step-down", "exits": "restart", "disabled": "exit"}
	for policy, effects := range map[string]map[string]string{
		"restart": {"fails": moves, "panics": moves, "hangs": waits, "stalls": nothing, "stalls-and-hangs": waits,
			"starts-slowly": nothing, "steps-down": moves, "exits": ends, "disabled": nothing},
		"step-down": {"fails": moves, "panics": moves, "hangs": waits, "stalls": moves, "stalls-and-hangs": waits,
			"starts-slowly": nothing, "steps-down": moves, "exits": ends, "disabled": nothing},
		"exit": {"fails": ends, "panics": ends, "hangs": ends, "stalls": ends, "stalls-and-hangs": ends,
			"starts-slowly": nothing, "steps-down": moves, "exits": ends, "disabled": nothing},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			shard := harness.NewShard(harness.StartEtcd(t).URL)
			shard.Binary, shard.Timings = harness.Program(t, "faulty"), faultyTimings
			sound := shard.Start(t, "sound", "--faults=")
			sound.WaitRoot()
			for fault, effect := range effects {
				if once[fault] != "" && once[fault] != policy && !*all {
					continue
				}
				t.Run(fault, func(t *testing.T) {
					harness.Eventually(t, "the sound replica leads", sound.Leads)
					mended := filepath.Join(t.TempDir(), "mended")
					faulty := shard.Start(t, "faulty", "--faults="+fault, "--mended="+mended, "--shutdown-timeout=4s", "--controller-failure-policy="+policy)
					handOver(t, sound, faulty)
					sound.CreateWorkspace(policy + "-" + fault)
					switch {
					case fault == "stalls" && effect == nothing:
						harness.Eventually(t, "it stalls and is restarted, twice", func() bool {
							restarts, _ := faulty.Metric(`regent_controller_restarts_total{controller="stalls"}`)
							stalls, _ := faulty.Metric(`regent_controller_stalls_total{controller="stalls"}`)
							return restarts >= 2 && stalls >= 2
						})
					case fault == "hangs":
						faulty.WaitWorkspace(policy + "-" + fault)
						faulty.StepDown("to see whether it can")
					}
					switch effect {
					case nothing:
						sound.WaitWorkspace(policy + "-" + fault)
						if terms := faulty.Terms(); len(terms) != 1 || terms[0].Reason != "" || !faulty.Leads() {
							t.Errorf("terms %v, want one that goes on", terms)
						}
						faulty.Signal(syscall.SIGTERM)
						if code := faulty.Wait(); code != 0 {
							t.Errorf("exit code %d", code)
						}
					case moves:
						harness.Eventually(t, "the sound replica leads", sound.Leads)
						if terms := faulty.Terms(); terms[0].Reason != "failed" && terms[0].Reason != "step down" {
							t.Errorf("terms %v", terms)
						}
						faulty.Signal(syscall.SIGTERM)
						if code := faulty.Wait(); code != 0 {
							t.Errorf("exit code %d", code)
						}
					case ends:
						if code := faulty.Wait(); code != 1 {
							t.Errorf("exit code %d, want 1", code)
						}
						if len(faulty.Lines("faulty: ", fault)) == 0 {
							t.Errorf("the last words do not name the controller %s", fault)
						}
						harness.Eventually(t, "the sound replica leads", sound.Leads)
					case waits:
						harness.Eventually(t, "it is quarantined", func() bool {
							quarantined, _ := faulty.Metric(`regent_election_quarantined{name="regent-controllers"}`)
							late, _ := faulty.Metric("regent_late_controllers")
							return quarantined == 1 && late == 1
						})
						if shard.Mode == harness.ForLife { // what hangs keeps the lease
							harness.Throughout(t, shard.Timings.Lease, "nobody leads", func() bool { return !sound.Leads() && !faulty.Leads() })
						} else {
							harness.Eventually(t, "the sound replica leads", sound.Leads)
						}
						if faulty.Status("/livez") != 200 || faulty.Status("/readyz") != 200 {
							t.Error("want a replica that serves")
						}
						if err := os.WriteFile(mended, nil, 0o600); err != nil {
							t.Fatal(err)
						}
						harness.Eventually(t, "it is whole again", func() bool {
							quarantined, _ := faulty.Metric(`regent_election_quarantined{name="regent-controllers"}`)
							return quarantined == 0
						})
						harness.Eventually(t, "the sound replica leads", sound.Leads)
						faulty.Signal(syscall.SIGTERM)
						if code := faulty.Wait(); code != 0 {
							t.Errorf("exit code %d", code)
						}
					}
					sound.WaitWorkspace(policy + "-" + fault)
					faulty.Terms()
				})
			}
			sound.Terms()
		})
	}
}

// I1, I6. It is slow because a lease has to expire, and is watched for as long, in one case after the other.
func TestAReplicaWhoseControllerHangsIsQuarantinedUntilItReturns(t *testing.T) {
	t.Parallel() // most of it is waiting
	for name, c := range map[string]struct {
		faults string
		end    func(t *testing.T, faulty *harness.Replica) // how the term ends, if not by itself
		ended  func(harness.Term) bool
	}{
		// One ends the term; the other does not notice.
		"another steps down": {"hangs,steps-down", func(*testing.T, *harness.Replica) {}, func(term harness.Term) bool { return term.Reason == "step down" }},
		// The stranger is never seen again, so the lease could be won from the second after.
		"deposed": {"hangs", func(t *testing.T, faulty *harness.Replica) {
			harness.Leader(t, faulty)
			faulty.Overwrite("stranger", 1)
		}, harness.Term.Deposed},
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
			if terms := faulty.Terms(); len(terms) != 1 || !c.ended(terms[0]) {
				t.Errorf("terms %v, want one that has ended by what was done", terms)
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

// I4, I6: nobody leads, and everybody serves and says so.
func TestReplicasThatAreAllQuarantinedServeOnUntilOneIsWhole(t *testing.T) {
	t.Parallel() // most of it is waiting
	mended := filepath.Join(t.TempDir(), "mended")
	shard := harness.NewShard(harness.StartEtcd(t).URL).Renewed()
	shard.Binary, shard.Timings = harness.Program(t, "faulty"), faultyTimings
	shard.Args = []string{"--faults=hangs", "--mended=" + mended}
	replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	for range replicas {
		leader, _ := harness.Leader(t, replicas...)
		leader.WaitRoot()
		leader.StepDown("to see it hang")
		harness.Eventually(t, leader.Name()+" is quarantined", func() bool { return len(leader.Lines("Quarantined")) == 1 })
	}
	for _, r := range replicas {
		harness.Eventually(t, r.Name()+" knows of no leader", func() bool {
			without, _ := r.Metric(`regent_election_seconds_without_leader{name="regent-controllers"}`)
			quarantined, _ := r.Metric(`regent_election_quarantined{name="regent-controllers"}`)
			return without > 1 && quarantined == 1
		})
		if len(r.Lines("Controller is late", `controller="hangs"`)) == 0 || !strings.Contains(r.Log(), "main.fault.Run") {
			t.Errorf("%s does not say what hangs, and where", r.Name())
		}
		if r.Leads() || r.Status("/livez") != 200 || r.Status("/readyz") != 200 {
			t.Errorf("want %s to serve, and not to lead", r.Name())
		}
		r.CreateWorkspace("through-" + r.Name())
	}
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	leader, _ := harness.Leader(t, replicas...)
	for _, r := range replicas {
		leader.WaitWorkspace("through-" + r.Name())
		r.Terms()
	}
}

// I6.
func TestAReplicaThatIsAskedToStopWhileAControllerHangsNamesItAndFails(t *testing.T) {
	t.Parallel() // most of it is waiting
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
