package election_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// inMode gives a replica that mode.
func inMode(mode election.Mode) func(*election.Config) {
	return func(cfg *election.Config) { cfg.Mode = mode }
}

var forLife = inMode(election.ForLife{})

// long is longer than any lease, deadline or back-off.
const long = 3 * time.Hour

// noticed records the notices of a replica.
type noticed struct {
	mu  sync.Mutex
	all []election.Notice
}

func (n *noticed) on(cfg *election.Config) {
	cfg.Notify = func(notice election.Notice) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, notice)
	}
}

// of returns the messages of the notices with that reason.
func (n *noticed) of(reason string) []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	var messages []string
	for _, notice := range n.all {
		if notice.Reason == reason {
			messages = append(messages, notice.Message)
		}
	}
	return messages
}

// ownerOf returns the only owner of the Lease.
func ownerOf(t *testing.T, store *electiontest.Store) metav1.OwnerReference {
	t.Helper()
	owners := store.Lease().OwnerReferences
	if len(owners) != 1 {
		t.Fatalf("the Lease's owners are %+v, want one", owners)
	}
	return owners[0]
}

func TestALeaseForLifeHasAnOwnerAndIsNeverRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil, forLife)
		leads := r.mustLead()
		written := store.Lease()
		if written.Spec.RenewTime != nil || written.Spec.LeaseDurationSeconds != nil {
			t.Errorf("the Lease has a renewTime or a duration: %+v", written.Spec)
		}
		owner := ownerOf(t, store)
		if life := store.Of(owner.Name).Lease(); life == nil || life.UID != owner.UID {
			t.Fatalf("owner %+v does not exist", owner)
		}
		reads := r.client.Count(electiontest.List)
		time.Sleep(long)
		if now := store.Lease(); now.ResourceVersion != written.ResourceVersion {
			t.Errorf("the Lease was written: %+v", now)
		}
		if again := r.mustLead(); again.Token() != leads.Token() {
			t.Errorf("leads in term %v, began in %v", again.Token(), leads.Token())
		}
		if n := float64(r.client.Count(electiontest.List)-reads) / long.Minutes(); n > 2.01 {
			t.Errorf("%.2f reads a minute, want one for each of two Leases", n)
		}
		r.stop()
		if store.Holder() != "" || len(store.Lease().OwnerReferences) != 0 {
			t.Errorf("not released: %+v", store.Lease())
		}
		if others := store.Others(); len(others) != 0 {
			t.Errorf("left behind: %q", others)
		}
	})
}

func TestNeitherTimeNorASlowStoreEndsATermForLife(t *testing.T) {
	for name, fault := range map[string]electiontest.Fault{
		"nothing":        {},
		"hanging store":  {Hang: true},
		"refusing store": {Err: errRefused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				r := start(t, store, nil, forLife)
				leads := r.mustLead()
				standby := start(t, store, nil, forLife)
				r.client.Always(fault)
				r.client.DropWatches()
				time.Sleep(long)
				if _, other := standby.leading(); other {
					t.Fatal("two lead")
				}
				r.client.Always(electiontest.Fault{})
				time.Sleep(lease)
				if again := r.mustLead(); again.Token() != leads.Token() {
					t.Errorf("leads in term %v, began in %v", again.Token(), leads.Token())
				}
				standby.stop()
				r.stop()
			})
		})
	}
}

func TestALeaderForLifeHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		first := start(t, store, nil, forLife)
		before := first.mustLead()
		second := start(t, store, nil, forLife)
		time.Sleep(long)
		if _, err := first.elector.StepDown("test", ""); err != nil {
			t.Fatal(err)
		}
		after := second.mustLead()
		if after.Epoch() != before.Epoch()+1 {
			t.Errorf("epoch %d after %d", after.Epoch(), before.Epoch())
		}
		first.mustEnd(0, election.StepDown)
		if owner := ownerOf(t, store); !slices.Contains(store.Others(), owner.Name) || len(store.Others()) != 2 {
			t.Errorf("owner %q, objects %q: want one for each process that lives", owner.Name, store.Others())
		}
		first.stop()
		second.stop()
	})
}

func TestDeletingTheOwnerFreesALeaseForLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Fence()
		first := start(t, store, nil, forLife)
		before := first.mustLead()
		second := start(t, store, nil, forLife)
		time.Sleep(long)

		first.client.Always(electiontest.Fault{Hang: true}) // it is cut off, and leads on in its own view
		first.client.HoldWatches(true)
		store.Of(ownerOf(t, store).Name).Delete()
		after := second.mustLead()
		if after.Epoch() != before.Epoch()+1 || after.Takeover().Trigger != election.TriggerOwnerDeleted {
			t.Errorf("epoch %d after %d, by %s", after.Epoch(), before.Epoch(), after.Takeover().Trigger)
		}
		if _, ok := first.leading(); !ok {
			t.Error("who is cut off cannot know, and leads on")
		}

		first.client.Always(electiontest.Fault{})
		first.client.HoldWatches(false)
		time.Sleep(moment)
		first.mustEnd(0, election.Deposed)
		if n := len(store.Others()); n != 2 {
			t.Errorf("%d objects, want one for each process that lives", n)
		}
		time.Sleep(long)
		if again := second.mustLead(); again.Token() != after.Token() {
			t.Errorf("the lease has changed hands: %v, then %v", after.Token(), again.Token())
		}
		second.stop()
		first.mustLead()
		first.stop()
	})
}

func podOf(name string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID("uid of " + name)}
}

// On a Kubernetes cluster the garbage collector deletes the Lease with the Pod that owns it.
func TestAnOwnerOfOnesOwnNeedsNoOtherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		pod := podOf("web-0")
		owned := func(cfg *election.Config) { cfg.Mode = election.ForLife{Owner: pod} }
		first := start(t, store, nil, owned)
		before := first.mustLead()
		if owner := ownerOf(t, store); owner.UID != pod.UID || len(store.Others()) != 0 {
			t.Errorf("owner %+v, other objects %q", owner, store.Others())
		}
		second := start(t, store, nil, owned)
		time.Sleep(long)
		first.client.HoldWatches(true)
		store.Delete()
		after := second.mustLead()
		if after.Epoch() != before.Epoch()+1 || after.Takeover().Trigger != election.TriggerDeletion {
			t.Errorf("epoch %d after %d, by %s", after.Epoch(), before.Epoch(), after.Takeover().Trigger)
		}
		first.client.HoldWatches(false)
		time.Sleep(moment)
		first.mustEnd(0, election.Deposed)
		second.stop()
		first.stop()
	})
}

func TestOwnersThatOthersGaveTheLeaseStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		theirs := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "app", UID: "app-uid"}
		store.Edit(func(lease *coordinationv1.Lease) { lease.OwnerReferences = []metav1.OwnerReference{theirs} })
		r := start(t, store, nil, forLife)
		r.mustLead()
		if owners := store.Lease().OwnerReferences; len(owners) != 2 || owners[0].UID != theirs.UID {
			t.Errorf("owners in the term: %+v", owners)
		}
		r.stop()
		if owner := ownerOf(t, store); owner.UID != theirs.UID {
			t.Errorf("owner after the term: %+v", owner)
		}
	})
}

// A refused connection is strong evidence, but an operator who chose this mode wants proof.
func TestALeaderForLifeThatIsNotHeardIsWaitedForAndAnOperatorIsTold(t *testing.T) {
	for name, sign := range map[string]election.Sign{"refused": election.Dead, "silent": election.Silent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, told := newNetwork(), &noticed{}
				of := func(peer *peer) func(*election.Config) {
					return func(cfg *election.Config) {
						detectBy(peer, election.DetectCrash, true)(cfg)
						cfg.Mode, cfg.ForgetCommand, cfg.Instance = election.ForLife{}, "regent forget-replica", cfg.Replica+"_1"
					}
				}
				store := electiontest.NewStore(leaseName)
				a, b := network.join("a"), network.join("b")
				first := start(t, store, nil, of(a))
				leads := first.mustLead()
				second := start(t, store, nil, of(b), told.on)
				time.Sleep(long)
				if messages := told.of(election.Unaccounted); len(messages) != 0 {
					t.Errorf("told while it is heard: %q", messages)
				}
				a.seem(sign)
				time.Sleep(lease - time.Second)
				if messages := told.of(election.Unaccounted); len(messages) != 0 {
					t.Errorf("told before a lease duration has passed: %q", messages)
				}
				time.Sleep(2 * time.Second)
				if messages := told.of(election.Unaccounted); len(messages) != 1 || !strings.HasSuffix(messages[0], "regent forget-replica a_1") {
					t.Errorf("an operator reads %q", messages)
				}
				if got := metric(t, "regent_election_leader_unaccounted"); got != 1 {
					t.Errorf("the metric is %v", got)
				}
				time.Sleep(long)
				if messages := told.of(election.Unaccounted); len(messages) != 1 {
					t.Errorf("told %d times", len(messages))
				}
				a.seem(election.Alive)
				time.Sleep(moment)
				if got := metric(t, "regent_election_leader_unaccounted"); got != 0 {
					t.Errorf("the metric is %v when it is heard again", got)
				}
				if again := first.mustLead(); again.Token() != leads.Token() {
					t.Errorf("leads in term %v, began in %v", again.Token(), leads.Token())
				}
				second.stop()
				first.stop()
			})
		})
	}
}

func TestWorkThatDoesNotStopKeepsALeaseForLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		release := make(chan struct{})
		first := start(t, store, func(context.Context, election.Term) error { <-release; return nil }, forLife)
		first.mustLead()
		second := start(t, store, nil, forLife)
		time.Sleep(moment)
		if _, err := first.elector.StepDown("test", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(long)
		if _, other := second.leading(); other {
			t.Fatal("two lead")
		}
		close(release)
		second.mustLead()
		first.stop()
		second.stop()
	})
}

func TestAProcessWhoseObjectCannotBeMadeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil, forLife, func(cfg *election.Config) {
			client := cfg.Client.(*electiontest.Client)
			for range 100 {
				client.Next(electiontest.Create, electiontest.Fault{Err: errRefused})
			}
		})
		time.Sleep(time.Minute)
		if _, leads := r.leading(); leads {
			t.Error("leads for life without anything that stands for its life")
		}
		if n, most := r.client.Count(electiontest.Create), int(time.Minute/retry)+10; n > most {
			t.Errorf("%d attempts in a minute, want %d at most", n, most)
		}
		time.Sleep(100 * retry)
		r.mustLead()
		r.stop()
	})
}

func TestAnOwnerThatIsGoneInAllButNameFreesALeaseForLife(t *testing.T) {
	for name, how := range map[string]func(store *electiontest.Store){
		// The finalizers of the garbage collector may wait for a leader.
		"deleted, and waits for a finalizer": func(store *electiontest.Store) {
			store.Of(ownerOf(t, store).Name).Edit(func(l *coordinationv1.Lease) {
				now := metav1.Now()
				l.DeletionTimestamp, l.Finalizers = &now, []string{metav1.FinalizerDeleteDependents}
			})
		},
		"taken off the Lease, and then deleted": func(store *electiontest.Store) {
			name := ownerOf(t, store).Name
			store.Edit(func(l *coordinationv1.Lease) { l.OwnerReferences = nil })
			time.Sleep(time.Second)
			store.Of(name).Delete()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				first := start(t, store, nil, forLife)
				first.mustLead()
				second := start(t, store, nil, forLife)
				time.Sleep(lease)
				first.client.Always(electiontest.Fault{Hang: true})
				first.client.HoldWatches(true)
				how(store)
				second.mustLead()
				first.client.Always(electiontest.Fault{})
				first.client.HoldWatches(false)
				second.stop()
				first.stop()
			})
		})
	}
}

func TestALeaderIsNotUnaccountedForWhenAnotherHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, network := electiontest.NewStore(leaseName), newNetwork()
		a, b := network.join("a"), network.join("b")
		first := start(t, store, nil, forLife, detectBy(a, election.DetectCrash, true))
		first.mustLead()
		second := start(t, store, nil, forLife, detectBy(b, election.DetectCrash, true))
		time.Sleep(lease)
		a.seem(election.Silent)
		time.Sleep(2 * lease)
		if got := metric(t, "regent_election_leader_unaccounted"); got != 1 {
			t.Errorf("the metric is %v", got)
		}
		store.Take("a stranger", lease)
		time.Sleep(moment)
		if got := metric(t, "regent_election_leader_unaccounted"); got != 0 {
			t.Errorf("the metric is %v while another holds the lease", got)
		}
		first.stop()
		second.stop()
	})
}

// Without its presence standbys would not know how to reach the leader, and would let the lease of a holder for life
// expire.
func TestALeaderPutsItsWordBackOnTheLease(t *testing.T) {
	for name, edit := range map[string]func(*coordinationv1.Lease){
		"taken off": func(l *coordinationv1.Lease) { l.Annotations = nil },
		"mangled":   func(l *coordinationv1.Lease) { l.Annotations[presenceAnnotation] = "{" },
		"of another mode": func(l *coordinationv1.Lease) {
			l.Annotations[presenceAnnotation] = strings.NewReplacer(`"lease"`, `"for-life"`, `"for-life"`, `"lease"`).Replace(l.Annotations[presenceAnnotation])
		},
	} {
		for _, mode := range election.Modes {
			t.Run(name+"/"+string(mode.Name()), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, network, told := electiontest.NewStore(leaseName), newNetwork(), &noticed{}
					r := start(t, store, nil, inMode(mode), detectBy(network.join("a"), election.DetectCrash, true))
					r.mustLead()
					standby := start(t, store, nil, inMode(mode), detectBy(network.join("b"), election.DetectCrash, true), told.on)
					time.Sleep(2 * lease)
					before := store.Lease().Annotations[presenceAnnotation]
					for range 5 {
						store.Edit(edit)
						// in mode coordinated client-go reads only with its next try
						time.Sleep(2*retry + moment)
						if after := store.Lease().Annotations[presenceAnnotation]; after != before || after == "" {
							t.Fatalf("it said %s, and says %s", before, after)
						}
					}
					if terms := r.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
						t.Errorf("the term ended: %v", terms[0].cause)
					}
					if messages := told.of(election.Unaccounted); len(messages) != 0 {
						t.Errorf("told meanwhile: %q", messages)
					}
					standby.stop()
					r.stop()
				})
			})
		}
	}
}

// The leader is dead or cut off, and cannot write its presence again.
func TestALeaseForLifeFromWhichTheHoldersWordIsTakenDoesNotExpire(t *testing.T) {
	for name, edit := range map[string]func(*coordinationv1.Lease){
		"taken off":        func(l *coordinationv1.Lease) { l.Annotations = nil },
		"mangled":          func(l *coordinationv1.Lease) { l.Annotations[presenceAnnotation] = "{" },
		"a strategy added": func(l *coordinationv1.Lease) { l.Spec.Strategy = ptr.To(coordinationv1.OldestEmulationVersion) },
		"of another mode": func(l *coordinationv1.Lease) {
			l.Annotations[presenceAnnotation] = strings.Replace(l.Annotations[presenceAnnotation], `"for-life"`, `"lease"`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, network, told := electiontest.NewStore(leaseName), newNetwork(), &noticed{}
				a := network.join("a")
				first := start(t, store, nil, forLife, detectBy(a, election.DetectCrash, true))
				first.mustLead()
				second := start(t, store, nil, forLife, detectBy(network.join("b"), election.DetectCrash, true), told.on)
				time.Sleep(lease)
				first.client.Always(electiontest.Fault{Hang: true})
				first.client.HoldWatches(true)
				a.seem(election.Silent)
				owner := ownerOf(t, store)
				store.Edit(edit)
				time.Sleep(long)
				if terms := second.all(); len(terms) != 0 {
					t.Fatalf("took a lease for life: %v", terms)
				}
				if messages := told.of(election.Unaccounted); len(messages) != 1 || !strings.HasSuffix(messages[0], "delete lease "+owner.Name) {
					t.Errorf("an operator reads %q", messages)
				}
				store.Of(owner.Name).Delete()
				second.mustLead()
				if now := ownerOf(t, store); now.UID == owner.UID {
					t.Error("the Lease is owned by what stood for the last leader's life")
				}
				first.client.Always(electiontest.Fault{})
				first.client.HoldWatches(false)
				second.stop()
				first.stop()
			})
		})
	}
}

func TestAReplicaThatIsNotThereIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		forgets := func(want string) {
			t.Helper()
			if err := election.Forget(t.Context(), store.Client(), "nobody"); !errors.Is(err, election.ErrNoReplica) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		forgets(`no such replica as "nobody": no replica holds the lease for life, or could`)
		r := start(t, store, nil, forLife, func(cfg *election.Config) { cfg.Replica = "somebody" })
		r.mustLead()
		forgets(`no such replica as "nobody": name the process, because a replica that is started anew keeps its name. Those that can be forgotten are ["somebody_`)
		r.mustLead()
		r.stop()
	})
}
