package election_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// presenceAnnotation is the annotation that the elector writes on the Lease.
const presenceAnnotation = "regent.dev/presence"

// holdForLife makes somebody hold the lease for life, with that presence.
func holdForLife(store *electiontest.Store, presence string) {
	store.Take("stranger", lease)
	store.Edit(func(l *coordinationv1.Lease) {
		l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = nil, nil
		l.Annotations = map[string]string{presenceAnnotation: `{"holder":"stranger","electionMode":"for-life"` + presence + "}"}
	})
}

// A holder has a right to its lease for as long as the Lease says, however long that is. But if it is not heard,
// perhaps nobody leads. So people are told: by an Event, by the log, and by the metric that has an alert.
func TestAHolderWhomNoExpiryEndsIsWaitedForAndPeopleAreTold(t *testing.T) {
	for name, test := range map[string]struct {
		hold    func(*electiontest.Store)
		due     time.Duration // since the holder was last heard
		command string
	}{
		"68 years": {
			func(s *electiontest.Store) {
				s.Take("stranger", lease)
				s.Edit(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](math.MaxInt32) })
			},
			4 * lease, `patch lease test-controllers --type=merge --patch='{"spec":{"holderIdentity":""}}'`,
		},
		"for life, no address": {
			func(s *electiontest.Store) { holdForLife(s, ``) },
			lease, "delete lease test-controllers",
		},
		"for life, an address that nobody has": {
			func(s *electiontest.Store) { holdForLife(s, `,"probe":{"address":"nobody","key":"k"}`) },
			lease, "delete lease test-controllers",
		},
		"for life, and its owner is not there": {
			func(s *electiontest.Store) { holdForLife(s, `,"owner":"u"`) },
			lease, "delete lease test-controllers",
		},
	} {
		for _, mode := range election.Modes {
			t.Run(name+"/"+string(mode.Name()), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, told := electiontest.NewStore(leaseName), &noticed{}
					test.hold(store)
					r := start(t, store, nil, detectBy(newNetwork().join("a"), election.DetectCrash, true), inMode(mode), told.on)
					time.Sleep(test.due - time.Second)
					if without, n := metric(t, "regent_election_seconds_without_leader"), len(told.of(election.Unaccounted)); without != 0 || n != 0 {
						t.Errorf("%v s without a leader, told %d times, before it is due", without, n)
					}
					time.Sleep(time.Second + 2*lease)
					if without := metric(t, "regent_election_seconds_without_leader"); without != (2 * lease).Seconds() {
						t.Errorf("%v s without a leader, want %v: the alert", without, (2 * lease).Seconds())
					}
					if got := metric(t, "regent_election_leader_unaccounted"); got != 1 {
						t.Errorf("unaccounted for: %v", got)
					}
					time.Sleep(long)
					if messages := told.of(election.Unaccounted); len(messages) != 1 || !strings.HasSuffix(messages[0], test.command) {
						t.Errorf("told %q, want %q", messages, test.command)
					}
					if terms := r.all(); len(terms) != 0 {
						t.Fatalf("took the lease: %v", terms)
					}
					if strings.Contains(test.command, "delete") {
						store.Delete()
					} else {
						store.Free()
					}
					time.Sleep(2*retry + moment) // the head start of the holder's mode
					r.mustLead()
					for _, name := range []string{"regent_election_seconds_without_leader", "regent_election_leader_unaccounted"} {
						if got := metric(t, name); got != 0 {
							t.Errorf("%s is %v while it leads", name, got)
						}
					}
					r.stop()
				})
			})
		}
	}
}

func TestAHolderThatRenewsIsAccountedForHoweverLongItsLeaseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := electiontest.NewStore(leaseName), &noticed{}
		store.Take("stranger", math.MaxInt32*time.Second)
		r := start(t, store, nil, told.on)
		for range 20 {
			time.Sleep(3 * lease)
			store.Renew()
			time.Sleep(moment)
			if got := metric(t, "regent_election_seconds_without_leader"); got != 0 {
				t.Errorf("%v s without a leader", got)
			}
		}
		time.Sleep(5 * lease)
		store.Renew()
		time.Sleep(moment)
		if got := metric(t, "regent_election_leader_unaccounted"); got != 0 || len(told.of(election.Unaccounted)) != 1 {
			t.Errorf("unaccounted for when it is heard again: %v, told %q", got, told.of(election.Unaccounted))
		}
		time.Sleep(5 * lease)
		if messages := told.of(election.Unaccounted); len(messages) != 2 {
			t.Errorf("told %q, want it twice", messages)
		}
		r.stop()
	})
}

// On a Kubernetes cluster a holder whose Pod owns the Lease needs no address, because the garbage collector deletes the
// Lease.
func TestAHolderOfALeaseThatItsPodOwnsNeedsNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, told := newNetwork(), &noticed{}
		store := electiontest.NewStore(leaseName)
		pod := func(name string) func(*election.Config) {
			return func(cfg *election.Config) { cfg.Mode = election.ForLife{Owner: podOf(name)} }
		}
		first := start(t, store, nil, pod("a"))
		first.mustLead()
		second := start(t, store, nil, pod("b"), detectBy(network.join("b"), election.DetectCrash, false), told.on)
		time.Sleep(long)
		if got := metric(t, "regent_election_seconds_without_leader"); got != 0 || len(told.of(election.Unaccounted)) != 0 {
			t.Errorf("%v s without a leader, told %q", got, told.of(election.Unaccounted))
		}
		second.stop()
		first.stop()
	})
}

func TestALeaseWithTheLastEpochIsToldOfAndDeletedItBeginsAnew(t *testing.T) {
	for _, mode := range election.Modes {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/held %t", mode.Name(), held), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, told := electiontest.NewStore(leaseName), &noticed{}
					r := start(t, store, nil, inMode(mode), told.on)
					if held {
						r.mustLead()
					}
					store.Edit(func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](math.MaxInt32) })
					if !held {
						store.Free()
					}
					time.Sleep(10 * time.Minute)
					if again, leads := r.leading(); leads {
						t.Fatalf("leads in epoch %d", again.Epoch())
					}
					if messages := told.of(election.NoEpochLeft); len(messages) != 1 || !strings.HasSuffix(messages[0], "delete lease test-controllers") {
						t.Errorf("people read %q", messages)
					}
					if got := metric(t, "regent_election_seconds_without_leader"); got < 9*60 {
						t.Errorf("%v s without a leader in 10 minutes", got)
					}
					store.Delete()
					time.Sleep(2 * retry)
					first := r.mustLead()
					if first.Epoch() > 2 {
						t.Errorf("leads in epoch %d of a new Lease", first.Epoch())
					}
					store.Take("somebody else", time.Second)
					time.Sleep(time.Minute)
					if second := r.mustLead(); second.Epoch() <= first.Epoch() {
						t.Errorf("leads in epoch %d after epoch %d", second.Epoch(), first.Epoch())
					}
					r.stop()
				})
			})
		}
	}
}
