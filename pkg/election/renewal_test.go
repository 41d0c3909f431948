package election_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// cutOff fails all later requests of a replica for which its test queues no fault.
func cutOff(r *replica) { r.client.Always(electiontest.Fault{Hang: true}) }

// mustEndWithin checks that the first term ended because it was not renewed, early enough to drain before the lease
// that was sent then expires.
func mustEndWithin(r *replica, sent time.Time) {
	r.t.Helper()
	ended := r.mustEnd(0, election.RenewDeadline).ended
	if worked := ended.Sub(sent); worked > lease-drain {
		r.t.Errorf("the term ended %v after its last write was sent, which leaves no drain of %v within a lease of %v", worked, drain, lease)
	}
}

// Others count from the renewal that they see, which is committed before its answer arrives.
func TestALeaseCountsFromWhenItsLastWriteWasSent(t *testing.T) {
	late := electiontest.Fault{AnswerDelay: renew/3 - moment} // still in time for its request
	t.Run("a renewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			r := start(t, store, nil)
			defer r.stop()
			defer r.client.Always(electiontest.Fault{})
			r.mustLead()
			time.Sleep(5 * retry)
			r.client.Next(electiontest.Update, late)
			cutOff(r)
			time.Sleep(2 * lease)
			history := store.History()
			mustEndWithin(r, history[len(history)-1].At)
		})
	})
	t.Run("the write that acquires it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			r := start(t, store, nil, func(cfg *election.Config) {
				client := cfg.Client.(*electiontest.Client)
				client.Next(electiontest.Create, late)
				client.Next(electiontest.Update, slices.Repeat([]electiontest.Fault{{Hang: true}}, 10)...)
			})
			defer r.stop()
			time.Sleep(renew / 3)
			r.mustLead()
			time.Sleep(lease)
			mustEndWithin(r, store.History()[0].At)
		})
	})
}

// After a failed renewal client-go reads the Lease. If it finds its own name there, no standby has to wait longer.
func TestAReadRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		r.mustLead()
		time.Sleep(5 * retry)
		history, reads := store.History(), r.client.Count(electiontest.List)
		r.client.Next(electiontest.Update, slices.Repeat([]electiontest.Fault{{Err: errRefused}}, 20)...)
		time.Sleep(lease)
		mustEndWithin(r, history[len(history)-1].At)
		if n := r.client.Count(electiontest.List) - reads; n < 3 {
			t.Errorf("read the Lease %d times while renewals failed", n)
		}
	})
}
