package election_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// Whatever one replica cannot do, from whichever moment on: soon it works all the same, or another one leads, and this
// one says why it does not. Nothing of it leads beside that, it ends when it is asked to, and works again when it can.
func TestWhateverAReplicaCannotDoSomebodyLeads(t *testing.T) {
	for _, request := range electiontest.Requests {
		for how, fault := range electiontest.Mishaps {
			for _, when := range []string{"from its start", "in its term", "at the end of its term"} {
				for _, mode := range []election.Mode{election.Renewed{}, election.Coordinated{}, election.ForLife{}} {
					t.Run(fmt.Sprintf("%s/%s %s/%s", mode.Name(), request, how, when), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { cannot(t, request, fault, when, mode, false) })
					})
				}
				t.Run(fmt.Sprintf("coordinated/%s of candidates %s/%s", request, how, when), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { cannot(t, request, fault, when, election.Coordinated{}, true) })
				})
			}
		}
	}
}

// cannot has one replica lack a kind of request of the Lease, or of candidates only.
func cannot(t *testing.T, request electiontest.Request, fault electiontest.Fault, when string, mode election.Mode, candidates bool) {
	store := electiontest.NewStore(leaseName)
	of := func(name string) func(*election.Config) {
		return func(cfg *election.Config) { cfg.Mode, cfg.Replica, cfg.Instance = mode, name, name }
	}
	poor := &replica{t: t, log: &record{}}
	var standing *electiontest.CandidateClient
	faulty := func(on bool) {
		f := electiontest.Fault{}
		if on {
			f = fault
		}
		if candidates {
			standing.Always(f, request)
		} else {
			poor.client.Always(f, request)
		}
	}
	early := func(cfg *election.Config) {
		standing = poor.client.Candidates()
		cfg.Candidates = standing
		if when == "from its start" {
			faulty(true)
		}
	}
	startAs(poor, store, nil, of("poor"), early)
	const soon = 2*lease + 10*time.Second // an electing controller takes its time
	time.Sleep(soon)
	rich := start(t, store, nil, of("rich"))
	switch when {
	case "in its term":
		faulty(true)
	case "at the end of its term":
		_, _ = poor.elector.StepDown("the next, please", "")
		faulty(true)
	}
	forgotten := false
	for waited := time.Duration(0); ; waited += time.Second {
		_, poorLeads := poor.leading()
		_, richLeads := rich.leading()
		if poorLeads && richLeads && poor.elector.Status().State == "leading" {
			t.Fatal("both lead")
		}
		if richLeads || poorLeads && waited > soon {
			break
		}
		if waited == soon && mode.Name() == "for-life" && !poorLeads && !forgotten {
			// who holds the lease for life, and is not heard, is declared dead by an operator
			forgotten = true
			if err := election.Forget(t.Context(), rich.client, "poor"); err != nil && !errors.Is(err, election.ErrNoReplica) {
				t.Fatal(err)
			}
		}
		if waited > 3*soon {
			t.Fatalf("nobody leads; the faulty one: %+v; the other: %+v", poor.elector.Status(), rich.elector.Status())
		}
		time.Sleep(time.Second)
	}
	if _, leads := poor.leading(); !leads && when == "from its start" {
		s := poor.elector.Status()
		if said := append(poor.log.with("Cannot"), poor.log.with("Campaign lost")...); len(said) == 0 || s.CannotRead+s.CannotStand+s.CannotWrite == "" {
			t.Errorf("it does not lead, and says nothing: %+v", s)
		}
	}
	faulty(false)
	began := time.Now()
	poor.stop()
	if took := time.Since(began); took > lease {
		t.Errorf("it took %v to end", took)
	}
	rich.stop()
	// An electing controller may name a candidate that is just about to go: that lease expires.
	if holder := store.Holder(); holder != "" && !mode.Electing() {
		t.Errorf("the lease is still held by %q", holder)
	}
	poor.client.Wait()
}
