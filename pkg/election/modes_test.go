package election_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// patience is how much longer a free lease of mode coordinated is left to its candidates.
const patience = 5 * time.Second

// eachChangeOfMode calls test for each pair of different modes.
func eachChangeOfMode(t *testing.T, test func(t *testing.T, from, to election.Mode)) {
	for _, from := range election.Modes {
		for _, to := range election.Modes {
			if from != to {
				t.Run(fmt.Sprintf("%s to %s", from.Name(), to.Name()), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { test(t, from, to) })
				})
			}
		}
	}
}

// modeOn returns the mode that the Lease names.
func modeOn(store *electiontest.Store) election.ModeName {
	for _, mode := range election.Modes {
		if strings.Contains(store.Lease().Annotations["regent.dev/presence"], fmt.Sprintf(`"electionMode":%q`, mode.Name())) {
			return mode.Name()
		}
	}
	return ""
}

// Whoever reads the Lease decides by what it says, and not by the name of a mode.
func TestTheLeaseSaysInEachModeWhetherItExpires(t *testing.T) {
	for _, mode := range election.Modes {
		t.Run(string(mode.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if mode.Name().Expires() != mode.Expires() {
					t.Errorf("the mode says %v, and its name on a Lease %v: ModeName.Expires (internal/lease/mode.go) does not know it", mode.Expires(), mode.Name().Expires())
				}
				store := electiontest.NewStore(leaseName)
				leader := start(t, store, nil, inMode(mode))
				leader.mustLead()
				standby := start(t, store, nil, inMode(mode))
				time.Sleep(lease)
				for who, r := range map[string]*replica{"the leader": leader, "its standby": standby} {
					if s := r.elector.Status(); s.Holder == "" || s.Mode != mode.Name() || (s.Duration > 0) != mode.Expires() {
						t.Errorf("%s says %+v", who, s)
					}
				}
				standby.stop()
				leader.stop()
			})
		})
	}
}

func TestAReplicaOfAnotherModeStandsByWhileOneOfTheLeasesModeLives(t *testing.T) {
	eachChangeOfMode(t, func(t *testing.T, from, to election.Mode) {
		store, told := electiontest.NewStore(leaseName), &noticed{}
		old1 := start(t, store, nil, inMode(from))
		old1.mustLead()
		old2 := start(t, store, nil, inMode(from))
		newer := start(t, store, nil, inMode(to), told.on)
		time.Sleep(2 * lease)
		if messages := told.of(election.OtherMode); len(messages) != 1 || !strings.Contains(messages[0], string(from.Name())) || !strings.Contains(messages[0], string(to.Name())) {
			t.Errorf("it says %q, want both modes, once", messages)
		}
		if got := metric(t, "regent_election_other_mode"); got != 1 {
			t.Errorf("the metric is %v", got)
		}
		for range 5 {
			old1.stop()
			old2.mustLead()
			old1, old2 = old2, start(t, store, nil, inMode(from))
			time.Sleep(lease)
		}
		if _, err := old1.elector.StepDown("test", ""); err != nil {
			t.Fatal(err)
		}
		old2.mustLead()
		if terms := newer.all(); len(terms) != 0 {
			t.Errorf("led while replicas of the Lease's mode could: %v", terms)
		}
		if mode := modeOn(store); mode != from.Name() {
			t.Errorf("the Lease names mode %q, want %q", mode, from.Name())
		}
		newer.stop()
		old1.stop()
		old2.stop()
	})
}

func TestTheModeIsChangedWhenNobodyOfTheLeasesModeIsLeft(t *testing.T) {
	for name, end := range map[string]func(*electiontest.Store, *replica){
		"stopped":      func(_ *electiontest.Store, r *replica) { r.stop() },
		"stepped down": func(_ *electiontest.Store, r *replica) { _, _ = r.elector.StepDown("test", ""); r.stop() },
		"not heard from": func(store *electiontest.Store, r *replica) {
			r.client.Always(electiontest.Fault{Hang: true})
			r.client.HoldWatches(true)
			forget(store)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachChangeOfMode(t, func(t *testing.T, from, to election.Mode) {
				store := electiontest.NewStore(leaseName)
				last := start(t, store, nil, inMode(from))
				before := last.mustLead()
				newer1, newer2 := start(t, store, nil, inMode(to)), start(t, store, nil, inMode(to))
				time.Sleep(2 * lease)
				end(store, last)
				time.Sleep(lease + 2*retry + patience + moment)
				_, leads1 := newer1.leading()
				_, leads2 := newer2.leading()
				if leads1 == leads2 {
					t.Fatalf("of two replicas of the new mode, they lead: %v, %v", leads1, leads2)
				}
				if mode := modeOn(store); mode != to.Name() {
					t.Errorf("the Lease names mode %q, want %q", mode, to.Name())
				}
				// of two candidates the second may be the better one
				if epoch := store.History()[len(store.History())-1].Epoch(); epoch <= before.Epoch() {
					t.Errorf("epoch %d after %d", epoch, before.Epoch())
				}
				last.client.Always(electiontest.Fault{})
				last.client.HoldWatches(false)
				newer1.stop()
				time.Sleep(2 * lease)
				if _, leads := newer2.leading(); !leads {
					t.Error("the second replica of the new mode does not lead")
				}
				newer2.stop()
				if name == "not heard from" {
					last.stop()
				}
			})
		})
	}
}

// forget deletes the object that stands for the holder's life, if the lease is held for life.
func forget(store *electiontest.Store) {
	if lease := store.Lease(); lease != nil {
		for _, owner := range lease.OwnerReferences {
			store.Of(owner.Name).Delete()
		}
	}
}

// A rolling change of the mode never leads to two leaders. Nobody leads only while the new mode waits for the old one.
func TestAReplicaAfterTheOtherIsRestartedInAnotherMode(t *testing.T) {
	eachChangeOfMode(t, func(t *testing.T, from, to election.Mode) {
		store := electiontest.NewStore(leaseName)
		var all []*replica
		for range 3 {
			all = append(all, start(t, store, nil, inMode(from)))
			time.Sleep(moment)
		}
		for i, r := range all {
			r.stop()
			time.Sleep(moment)
			all[i] = start(t, store, nil, inMode(to))
			time.Sleep(3*retry + patience)
			leaders := 0
			for _, r := range all {
				if _, leads := r.leading(); leads {
					leaders++
				}
			}
			if leaders != 1 {
				t.Fatalf("%d lead after %d of 3 were restarted", leaders, i+1)
			}
			want := from.Name()
			if i == len(all)-1 {
				want = to.Name()
			}
			if mode := modeOn(store); mode != want {
				t.Errorf("the Lease names mode %q after %d of 3 were restarted, want %q", mode, i+1, want)
			}
		}
		for _, r := range all {
			r.stop()
		}
	})
}

// An elector that knows no modes, such as client-go's, leaves a Lease that names no mode, or the mode of another
// holder.
func TestALeaseOfAStrangerIsHeldByRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil, forLife)
		r.mustLead()
		store.Take("stranger", lease)
		time.Sleep(moment)
		r.mustEnd(0, election.Deposed)
		time.Sleep(lease - time.Second)
		if _, leads := r.leading(); leads {
			t.Fatal("took a lease that has not expired")
		}
		time.Sleep(time.Second + 2*retry + moment)
		r.mustLead()
		if n := len(store.Lease().OwnerReferences); n != 1 {
			t.Errorf("%d owners", n)
		}
		r.stop()
	})
}

func TestAnEditOrALostReplyEndsNoTerm(t *testing.T) {
	for what, happens := range map[string]func(*electiontest.Store, *replica){
		"a label": func(s *electiontest.Store, _ *replica) { s.Edit(label) },
		"a lost reply": func(_ *electiontest.Store, r *replica) {
			r.client.Next(electiontest.Update, electiontest.Fault{LoseReply: true})
		},
	} {
		for _, mode := range election.Modes {
			t.Run(what+"/"+string(mode.Name()), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := electiontest.NewStore(leaseName)
					r := start(t, store, nil, inMode(mode))
					r.mustLead()
					happens(store, r)
					time.Sleep(2 * lease)
					if all := r.all(); len(all) != 1 {
						t.Errorf("%d terms; the first ended because %v", len(all), all[0].cause)
					}
					r.stop()
				})
			})
		}
	}
}

// A lease that is deposed on the way to another mode is left to the old mode once, not twice.
func TestADeadHolderOfAnotherModeIsSucceededAfterOneHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		old := start(t, store, nil, forLife)
		old.mustLead()
		newer := start(t, store, nil, inMode(election.Coordinated{}))
		time.Sleep(lease)
		old.client.Always(electiontest.Fault{Hang: true})
		old.client.HoldWatches(true)
		forget(store)
		time.Sleep(2 * retry)
		newer.mustLead()
		newer.stop()
		old.client.Always(electiontest.Fault{})
		old.client.HoldWatches(false)
		old.stop()
	})
}

// Where nothing keeps epochs from falling, as on a Kubernetes cluster, somebody may take the Lease with a lower epoch.
func TestALeaderIsDeposedByWhoeverTakesTheLeaseInWhateverEpoch(t *testing.T) {
	for _, mode := range election.Modes {
		for _, epoch := range []int32{0, 1, 2, 3, math.MaxInt32 - 1} {
			t.Run(fmt.Sprintf("%s/%d", mode.Name(), epoch), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := electiontest.NewStore(leaseName)
					store.Edit(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](1) })
					r := start(t, store, nil, inMode(mode))
					time.Sleep(retry) // to be elected
					leads := r.mustLead()
					if leads.Epoch() != 2 {
						t.Fatalf("leads in epoch %d", leads.Epoch())
					}
					store.Edit(func(l *coordinationv1.Lease) {
						now := metav1.NowMicro()
						l.Spec = coordinationv1.LeaseSpec{
							HolderIdentity: ptr.To("stranger"), LeaseDurationSeconds: ptr.To[int32](15),
							AcquireTime: &now, RenewTime: &now, LeaseTransitions: &epoch,
						}
					})
					time.Sleep(moment)
					r.mustEnd(0, election.Deposed)
					time.Sleep(lease - retry)
					if again, ok := r.leading(); ok {
						t.Errorf("leads in epoch %d beside the stranger", again.Epoch())
					}
					time.Sleep(2*lease + patience)
					if again := r.mustLead(); again.Epoch() <= max(int64(epoch), leads.Epoch()) {
						t.Errorf("leads in epoch %d after %d and the stranger's %d", again.Epoch(), leads.Epoch(), epoch)
					}
					r.stop()
				})
			})
		}
	}
}

// Only the electing controller of mode coordinated can set a preferred holder. In other modes this is an edit like any
// other, and the next renewal removes it.
func TestAPreferredHolderIsHeededInModeCoordinatedOnly(t *testing.T) {
	for _, mode := range []election.Mode{election.Renewed{}, election.ForLife{}} {
		t.Run(string(mode.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, told := electiontest.NewStore(leaseName), &noticed{}
				r := start(t, store, nil, inMode(mode))
				leads := r.mustLead()
				standby := start(t, store, nil, inMode(mode), told.on)
				time.Sleep(moment)
				prefer := func(l *coordinationv1.Lease) {
					l.Spec.PreferredHolder, l.Spec.Strategy = ptr.To("nobody"), ptr.To(coordinationv1.OldestEmulationVersion)
				}
				store.Edit(prefer)
				time.Sleep(2 * lease)
				if again := r.mustLead(); again.Token() != leads.Token() {
					t.Errorf("leads in term %v, began in %v", again.Token(), leads.Token())
				}
				store.Edit(prefer) // nor does it keep a lease from being won
				r.stop()
				standby.mustLead()
				if lease := store.Lease(); lease.Spec.PreferredHolder != nil || lease.Spec.Strategy != nil {
					t.Errorf("the Lease is %+v", lease.Spec)
				}
				if messages := told.of(election.OtherMode); len(messages) != 0 {
					t.Errorf("it stood by because of another mode: %q", messages)
				}
				standby.stop()
			})
		})
	}
}
