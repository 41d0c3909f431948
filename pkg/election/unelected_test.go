package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
)

func TestWithoutElectionOneTermRunsWithoutATokenAndWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := startUnelected(t, store)
		leads := r.mustLead()
		if leads.Epoch() != 0 || leads.Token() != (fence.Token{}) {
			t.Errorf("epoch %d, token %v, want none", leads.Epoch(), leads.Token())
		}
		if gauge(t) != 1 {
			t.Error("leader_election_master_status is not 1")
		}
		time.Sleep(time.Hour)
		r.stop()
		if n := len(r.all()); n != 1 {
			t.Errorf("%d terms, want one", n)
		}
		r.mustEnd(0, election.Shutdown)
		if n := len(store.History()); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestWithoutElectionTheTermEndsWhileTheLeaseIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", lease)
		r := startUnelected(t, store)
		defer r.stop()
		time.Sleep(moment)
		if terms := r.all(); len(terms) != 0 {
			t.Fatalf("runs although the lease is held: %v", terms)
		}
		time.Sleep(lease) // it expires
		r.mustLead()
		store.Renew() // it was not dead
		time.Sleep(moment)
		r.mustEnd(0, election.Deposed)
		store.Free()
		r.mustLead()
		candidate := start(t, store, nil)
		candidate.mustLead()
		r.mustEnd(1, election.Deposed)
		candidate.stop()
		r.mustLead()
		store.Delete()
		time.Sleep(moment)
		if n := len(r.all()); n != 3 {
			t.Errorf("%d terms: a deletion frees the lease, it deposes nobody who leads without one", n)
		}
	})
}
