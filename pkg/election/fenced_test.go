package election_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
)

// A renewal carries the token. The first answer that says that the term is over ends the term.
func TestARefusedRenewalEndsTheTermAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Fence()
		r := start(t, store, nil)
		defer r.stop()
		r.mustLead()
		time.Sleep(2 * retry) // renewals of a term that goes on are made
		if _, leads := r.leading(); !leads {
			t.Fatalf("its own renewals ended the term: %v", r.all())
		}

		r.client.HoldWatches(true)
		defer r.client.HoldWatches(false)
		store.Take("foreign", lease)
		taken, reads := time.Now(), r.client.Count(electiontest.List)
		time.Sleep(renew)

		if took := r.mustEnd(0, election.Fenced).ended.Sub(taken); took > retry+moment {
			t.Errorf("worked on for %v after the lease was taken, want at most a retry period", took)
		}
		if n := r.client.Count(electiontest.List) - reads; n > 1 {
			t.Errorf("read the Lease %d times to believe a refusal", n)
		}
	})
}

// Clients of the term's work send its token if it is.
func TestATermTellsWhetherItIsFenced(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprint(fenced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, electiontest.NewStore(leaseName), nil, func(cfg *election.Config) { cfg.Fenced = fenced })
				defer r.stop()
				term := r.mustLead().Term
				if term.Fenced() != fenced {
					t.Errorf("the term says %v, the configuration %v", term.Fenced(), fenced)
				}
				if ended, err := r.elector.StepDown("", ""); err != nil || ended != term {
					t.Errorf("stepped down from another term, %v: %v", ended, err)
				}
			})
		})
	}
	if (election.Term{}).Fenced() {
		t.Error("a term without election is fenced")
	}
}

// Fact 3 of docs/CLIENT-GO.md: a release that comes too late must leave the successor its lease. The store refuses it,
// whatever its revision.
func TestARefusedReleaseLeavesTheSuccessorItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Fence()
		r := start(t, store, nil)
		r.mustLead()
		r.client.HoldWatches(true) // so that it does not know
		defer r.client.HoldWatches(false)
		store.Take("foreign", lease)
		r.stop()
		if store.Holder() != "foreign" {
			t.Errorf("the lease is held by %q", store.Holder())
		}
	})
}

// If the term's work gets the refusal, the term ends for the same cause, and the replica does not campaign against the
// new leader.
func TestARefusedWriteEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		refused := make(chan struct{})
		r := start(t, store, func(ctx context.Context, term election.Term) error {
			if term.Epoch() > 1 {
				<-ctx.Done()
				return nil
			}
			<-refused
			election.Fail(ctx, fmt.Errorf("%w: %w", election.Fenced, fence.NewRefusal("the term is over")))
			<-ctx.Done()
			return nil
		})
		defer r.stop()
		r.mustLead()
		close(refused)
		time.Sleep(moment)
		if end := r.mustEnd(0, election.Fenced); !end.joined.Equal(end.ended) {
			t.Errorf("joined %v after its end", end.joined.Sub(end.ended))
		}
		// Nobody else wanted the lease.
		time.Sleep(retry)
		if second := r.mustLead(); second.Epoch() != 2 {
			t.Errorf("leads in epoch %d", second.Epoch())
		}
	})
}
