package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// ranks starts replicas a, b, c... of these priorities on one store. The first one leads.
func ranks(t *testing.T, mode election.Mode, preempt bool, priorities ...int32) (store *electiontest.Store, peers []*peer, all []*replica) {
	t.Helper()
	network := newNetwork()
	store = electiontest.NewStore(leaseName)
	store.Fence()
	for i, priority := range priorities {
		p := network.join(string(rune('a' + i)))
		peers = append(peers, p)
		all = append(all, start(t, store, nil, detectBy(p, election.DetectCrash, true), func(cfg *election.Config) {
			cfg.Mode, cfg.Priority, cfg.Preempt = mode, priority, preempt
		}))
		time.Sleep(moment)
	}
	time.Sleep(2 * retry) // the leader publishes who follows it
	return store, peers, all
}

func TestTheStandbyOfTheHighestPriorityTakesOver(t *testing.T) {
	for _, mode := range []election.Mode{election.Renewed{}, election.ForLife{}} {
		for name, end := range map[string]func(*electiontest.Store, *peer, *replica){
			"it is stopped": func(_ *electiontest.Store, _ *peer, r *replica) { r.stop() },
			"it steps down": func(_ *electiontest.Store, _ *peer, r *replica) { _, _ = r.elector.StepDown("test", "") },
			"it is dead": func(_ *electiontest.Store, p *peer, r *replica) {
				r.client.Always(electiontest.Fault{Hang: true})
				p.seem(election.Dead)
			},
			"its owner is deleted": func(store *electiontest.Store, _ *peer, r *replica) {
				r.client.Always(electiontest.Fault{Hang: true})
				forget(store)
			},
		} {
			if name == "it is dead" && mode == (election.ForLife{}) || name == "its owner is deleted" && mode == (election.Renewed{}) {
				continue // nobody takes over by that
			}
			t.Run(string(mode.Name())+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, peers, all := ranks(t, mode, false, 0, 1, 3, 2)
					end(store, peers[0], all[0])
					time.Sleep(retry / 4)
					all[2].mustLead()
					for _, i := range []int{1, 3} {
						if terms := all[i].all(); len(terms) != 0 {
							t.Errorf("the replica of priority %d led: %v", []int{0, 1, 3, 2}[i], terms)
						}
					}
					all[0].client.Always(electiontest.Fault{})
					time.Sleep(2 * lease)
					if _, leads := all[2].leading(); !leads {
						t.Error("it does not lead on")
					}
					for i, r := range all {
						if i > 0 || name != "it is stopped" {
							r.stop()
						}
					}
				})
			})
		}
	}
}

// No standby waits for a replica of high priority that does not exist.
func TestAHighPriorityThatIsGoneCostsAHeadStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, peers, all := ranks(t, election.Renewed{}, false, 0, 1, 2)
		all[2].client.Always(electiontest.Fault{Hang: true}) // it hangs
		all[2].client.HoldWatches(true)
		all[0].client.Always(electiontest.Fault{Hang: true})
		peers[0].seem(election.Dead)
		time.Sleep(retry / 4)
		all[1].mustLead()
		for _, r := range all {
			r.client.Always(electiontest.Fault{})
			r.client.HoldWatches(false)
		}
		for _, r := range all {
			r.stop()
		}
	})
}

func TestAHigherPriorityPreemptsOnceItIsSound(t *testing.T) {
	for _, mode := range []election.Mode{election.Renewed{}, election.ForLife{}} {
		synctest.Test(t, func(t *testing.T) {
			store, _, all := ranks(t, mode, true, 0, 2, 1)
			began := time.Now()
			time.Sleep(lease - 3*retry)
			if _, leads := all[0].leading(); !leads {
				t.Fatalf("%s: it was preempted before the other could have led for a lease duration", mode)
			}
			time.Sleep(4 * retry)
			all[1].mustLead()
			ended := all[0].mustEnd(0, election.StepDown)
			if !strings.Contains(ended.cause.Error(), "has priority 2") {
				t.Errorf("%s: ended because %v", mode, ended.cause)
			}
			time.Sleep(10 * time.Minute)
			terms := len(all[0].all()) + len(all[1].all()) + len(all[2].all())
			if _, leads := all[1].leading(); !leads || terms != 2 {
				t.Errorf("%s: %d terms in %v, the best leads: %v", mode, terms, time.Since(began), leads)
			}
			if mode == (election.ForLife{}) {
				if n := len(store.History()); n > 10 {
					t.Errorf("%d writes for life", n)
				}
			}
			for _, r := range all {
				r.stop()
			}
		})
	}
}

func TestAHigherPriorityThatFailsPreemptsEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		with := func(name string, priority int32) func(*election.Config) {
			p := network.join(name)
			return func(cfg *election.Config) {
				detectBy(p, election.DetectCrash, true)(cfg)
				cfg.Priority, cfg.Preempt = priority, true
			}
		}
		sound := start(t, store, nil, with("sound", 0))
		sound.mustLead()
		failing := start(t, store, func(context.Context, election.Term) error {
			time.Sleep(time.Second)
			return errors.New("so it fails")
		}, with("failing", 1))
		time.Sleep(time.Hour)
		if n := len(failing.all()); n < 4 || n > 12 {
			t.Errorf("it preempted %d times in an hour", n)
		}
		sound.stop()
		failing.stop()
	})
}

// This also holds without priorities: a leader that stops says whether there is a standby of its mode.
func TestTheLastReplicaOfAModeLeavesAtOnceToTheOthers(t *testing.T) {
	eachChangeOfMode(t, func(t *testing.T, from, to election.Mode) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		last := start(t, store, nil, detectBy(network.join("a"), election.DetectCrash, true), inMode(from))
		last.mustLead()
		newer := start(t, store, nil, detectBy(network.join("b"), election.DetectCrash, true), inMode(to))
		time.Sleep(lease)
		last.stop()
		newer.mustLead()
		if mode := modeOn(store); mode != to.Name() {
			t.Errorf("the Lease names mode %q", mode)
		}
		newer.stop()
	})
}
