package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// version makes a replica a candidate of that version, in mode coordinated.
func version(emulated string) func(*election.Config) {
	return func(cfg *election.Config) {
		cfg.Mode = election.Coordinated{BinaryVersion: "9.0.0", EmulationVersion: emulated}
	}
}

func TestTheOldestVersionLeadsAndItsCandidateIsItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		first := start(t, store, nil, version("1.1.0"))
		leads := first.mustLead()
		if names := store.Candidates().Names(); len(names) != 1 || names[0] != leads.Token().Holder {
			t.Errorf("candidates %q, holder %q", names, leads.Token().Holder)
		}
		second, third := start(t, store, nil, version("1.2.0")), start(t, store, nil, version("1.3.0"))
		time.Sleep(20 * lease)
		if again := first.mustLead(); again.Token() != leads.Token() {
			t.Errorf("leads in term %v, began in %v", again.Token(), leads.Token())
		}
		if lease := store.Lease(); ptr.Deref(lease.Spec.Strategy, "") == "" || modeOn(store) != "coordinated" {
			t.Errorf("the Lease: %+v", lease)
		}
		first.stop()
		next := second.mustLead()
		// it may have been elected before it saw the release
		triggers := []election.Trigger{election.TriggerRelease, election.TriggerElected}
		if next.Epoch() != leads.Epoch()+1 || !slices.Contains(triggers, next.Takeover().Trigger) {
			t.Errorf("epoch %d after %d, by %s", next.Epoch(), leads.Epoch(), next.Takeover().Trigger)
		}
		if n := len(store.Candidates().Names()); n != 2 {
			t.Errorf("%d candidates of 2 replicas", n)
		}
		second.stop()
		third.mustLead()
		third.stop()
		if names := store.Candidates().Names(); len(names) != 0 || store.Holder() != "" {
			t.Errorf("left behind: candidates %q, holder %q", names, store.Holder())
		}
	})
}

func TestEachTermHasACandidateOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil, version("1.0.0"))
		seen := map[string]bool{}
		var last int64
		for range 20 {
			leads := r.mustLead()
			if holder := leads.Token().Holder; seen[holder] || leads.Epoch() <= last {
				t.Fatalf("term %v after epoch %d, its holder seen before: %v", leads.Token(), last, seen[holder])
			}
			seen[leads.Token().Holder], last = true, leads.Epoch()
			if _, err := r.elector.StepDown("test", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(retry)
		}
		time.Sleep(moment)
		if n := len(store.Candidates().Names()); n != 1 {
			t.Errorf("%d candidates of one replica", n)
		}
		r.stop()
	})
}

func TestABetterCandidateGetsTheLeaseInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		const stops = time.Second
		newer := start(t, store, func(ctx context.Context, _ election.Term) error { <-ctx.Done(); time.Sleep(stops); return nil }, version("1.2.0"))
		newer.mustLead()
		older := start(t, store, nil, version("1.1.0"))
		time.Sleep(stops)
		older.mustLead()
		ended := newer.mustEnd(0, election.StepDown)
		if !strings.Contains(ended.cause.Error(), "is preferred") {
			t.Errorf("ended because %v", ended.cause)
		}
		if began := older.all()[0].began; began.Before(ended.joined) {
			t.Errorf("the next term began %v before the one before was joined", ended.joined.Sub(began))
		}
		time.Sleep(2 * lease)
		if terms := len(newer.all()) + len(older.all()); terms != 2 {
			t.Errorf("%d terms, want 2: the lease flaps", terms)
		}
		older.stop()
		newer.mustLead()
		newer.stop()
	})
}

func TestADeadLeaderIsSucceededAtOnceByTheBestOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, network := electiontest.NewStore(leaseName), newNetwork()
		store.Fence()
		a, b, c := network.join("a"), network.join("b"), network.join("c")
		first := start(t, store, nil, version("1.1.0"), detectBy(a, election.DetectCrash, true))
		before := first.mustLead()
		third := start(t, store, nil, version("1.3.0"), detectBy(c, election.DetectCrash, true))
		second := start(t, store, nil, version("1.2.0"), detectBy(b, election.DetectCrash, true))
		time.Sleep(lease)
		first.client.Always(electiontest.Fault{Hang: true})
		a.seem(election.Dead)
		after := second.mustLead()
		if after.Epoch() != before.Epoch()+1 {
			t.Errorf("epoch %d after %d", after.Epoch(), before.Epoch())
		}
		if names := store.Candidates().Names(); slices.Contains(names, before.Token().Holder) || len(names) != 2 {
			t.Errorf("candidates %q, the dead one was %q", names, before.Token().Holder)
		}
		if terms := third.all(); len(terms) != 0 {
			t.Errorf("the newest has led: %v", terms)
		}
		first.client.Always(electiontest.Fault{})
		second.stop()
		third.stop()
		first.stop()
	})
}

// A standby whose watch of the Lease is late takes the lease for expired. Its compare-and-swap fails, and nothing else
// happens: the leader's candidate stays the oldest.
func TestAStandbyWhoseWatchIsLateTakesNobodysCandidateAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		first := start(t, store, nil, version("1.0.0"))
		first.mustLead()
		second := start(t, store, nil, version("1.0.0"))
		time.Sleep(retry)
		before := store.Candidates().Names()
		writes := second.client.Count(electiontest.Update)
		second.client.HoldWatches(true)
		time.Sleep(lease + retry)
		second.client.HoldWatches(false)
		time.Sleep(2 * retry)
		if second.client.Count(electiontest.Update) == writes {
			t.Fatal("it did not take the lease for expired")
		}
		if after := store.Candidates().Names(); len(before) != 2 || !slices.Equal(before, after) {
			t.Errorf("candidates were %q, are %q", before, after)
		}
		if terms := first.all(); len(terms) != 1 || !terms[0].ended.IsZero() {
			t.Errorf("the leader's term ended: %v", terms[0].cause)
		}
		first.stop()
		second.stop()
	})
}

func TestALeaderThatNobodySeesDieIsSucceededWhenItsLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		first := start(t, store, nil, version("1.1.0"))
		first.mustLead()
		second := start(t, store, nil, version("1.2.0"))
		time.Sleep(lease)
		first.client.Always(electiontest.Fault{Hang: true})
		first.client.HoldWatches(true)
		time.Sleep(lease)
		if took := second.mustLead().Takeover(); took.Trigger != election.TriggerExpiry || took.Decided.Sub(took.Symptom) < lease {
			t.Errorf("took over because of %s, after %v: who was elected has seen the lease expire", took.Trigger, took.Decided.Sub(took.Symptom))
		}
		first.mustEnd(0, election.RenewDeadline)
		first.client.Always(electiontest.Fault{})
		first.client.HoldWatches(false)
		time.Sleep(2 * lease) // it is the best, and back
		first.mustLead()
		second.stop()
		first.stop()
	})
}

func TestACandidateThatIsAskedAnswersWhateverTheClocksSay(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			r := start(t, store, nil, version("1.0.0"))
			name := r.mustLead().Token().Holder
			store.Candidates().Ask(name, ahead)
			time.Sleep(moment)
			if !store.Candidates().HasAnswered(name) {
				t.Errorf("no answer to a clock that is %v ahead", ahead)
			}
			store.Candidates().Remove(name)
			time.Sleep(moment)
			if !store.Candidates().HasAnswered(name) {
				t.Error("a candidate that somebody deleted is not there again")
			}
			r.stop()
		})
	}
}

// I7: a replica whose work fails does not keep the lease.
func TestACandidateWhoseWorkFailsLeavesTheLeaseToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		failing := start(t, store, func(context.Context, election.Term) error {
			time.Sleep(time.Second)
			return errors.New("so it fails")
		}, version("1.1.0"))
		failing.mustLead()
		sound := start(t, store, nil, version("1.2.0"))
		time.Sleep(10 * time.Minute)
		led := time.Duration(0)
		for _, term := range sound.all() {
			end := term.ended
			if end.IsZero() {
				end = time.Now()
			}
			led += end.Sub(term.began)
		}
		t.Logf("the sound one led for %v of 10m, in %d terms; the other, which is older, failed %d times", led, len(sound.all()), len(failing.all()))
		if led < 8*time.Minute {
			t.Errorf("the sound one led for %v of 10m", led)
		}
		failing.stop()
		sound.stop()
	})
}

// unattended returns a store without an electing controller: only the test names holders.
func unattended(t *testing.T) *electiontest.Store {
	t.Helper()
	store := electiontest.NewStore(leaseName)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	store.Elect(over)
	return store
}

// name writes a candidate to the Lease as kube-apiserver does, without raising leaseTransitions.
func name(store *electiontest.Store, candidate string, change ...func(*coordinationv1.LeaseSpec)) {
	store.Edit(func(l *coordinationv1.Lease) {
		now := metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.PreferredHolder, l.Spec.AcquireTime = &candidate, nil, nil
		l.Spec.RenewTime, l.Spec.LeaseDurationSeconds, l.Spec.Strategy = &now, ptr.To[int32](5), ptr.To(coordinationv1.OldestEmulationVersion)
		for _, c := range change {
			c(&l.Spec)
		}
	})
}

func TestEpochsGrowAlsoWhereWhoeverElectsDoesNotRaiseThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := unattended(t)
		a, b := start(t, store, nil, version("1.1.0")), start(t, store, nil, version("1.2.0"))
		for want := int64(1); want <= 6; want++ {
			time.Sleep(3 * retry)
			leads := a
			a.client.HoldWatches(want%2 == 0) // it does not see that it was named for a moment
			if name(store, store.Candidates().Names()[0]); want%2 == 0 {
				store.Free()
				name(store, store.Candidates().Names()[1])
				a.client.HoldWatches(false)
				leads = b
			}
			if got := leads.mustLead().Epoch(); got != want {
				t.Fatalf("epoch %d, want %d", got, want)
			}
			if _, err := leads.elector.StepDown("test", ""); err != nil {
				t.Fatal(err)
			}
		}
		a.stop()
		b.stop()
	})
}

// With a preferred holder client-go neither renews nor begins a term.
func TestWhoIsNamedAndPreferredAtOnceDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := unattended(t)
		r := start(t, store, nil, version("1.0.0"))
		time.Sleep(moment)
		candidate := store.Candidates().Names()[0]
		name(store, candidate, func(s *coordinationv1.LeaseSpec) { s.PreferredHolder = &candidate })
		time.Sleep(lease)
		if store.Holder() != "" {
			t.Error("its own name is left on the Lease")
		}
		r.stop()
	})
}

// In mode coordinated a standby that suspects the holder does not take the lease itself. The Lease still has the count
// of suspicions.
func TestADeposedHoldersSuspicionIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, network := unattended(t), newNetwork()
		store.Fence()
		a, b := network.join("a"), network.join("b")
		first := start(t, store, nil, version("1.1.0"), detectBy(a, election.DetectSuspect, true))
		time.Sleep(moment)
		name(store, store.Candidates().Names()[0])
		first.mustLead()
		second := start(t, store, nil, version("1.2.0"), detectBy(b, election.DetectSuspect, true))
		time.Sleep(retry)
		first.client.Always(electiontest.Fault{Hang: true})
		a.seem(election.Silent)
		time.Sleep(moment)
		if said := fmt.Sprint(store.Lease().Annotations); store.Holder() != "" || !strings.Contains(said, `"suspicions":1`) {
			t.Errorf("held by %q, the Lease says %s", store.Holder(), said)
		}
		first.client.Always(electiontest.Fault{})
		second.stop()
		first.stop()
	})
}
