package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// The facts are those of docs/CLIENT-GO.md: behaviour of client-go for which the elector must make up.

// Fact 1: renew retries until its deadline although it has read another holder's name.
func TestALeaderThatReadsAnotherHolderStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		r.mustLead()

		r.client.HoldWatches(true)
		defer r.client.HoldWatches(false)
		store.Take("foreign", lease)
		taken, writes := time.Now(), r.client.Count(electiontest.Update)
		time.Sleep(renew)

		if took := r.mustEnd(0, election.Deposed).ended.Sub(taken); took > retry+moment {
			t.Errorf("worked on for %v after the lease was taken, want at most a retry period", took)
		}
		if n := r.client.Count(electiontest.Update) - writes; n != 1 {
			t.Errorf("tried %d writes after the lease was taken, want the one renewal that found out", n)
		}
	})
}

// Fact 2: during the retries of a renewal client-go takes the lease back after another term has come and gone.
func TestATermNeverSpansAForeignOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		first := r.mustLead()

		r.client.HoldWatches(true)
		r.client.Next(electiontest.Update, electiontest.Fault{Err: errRefused})
		r.client.Next(electiontest.List, electiontest.Fault{Err: errRefused})
		time.Sleep(retry) // the renewal fails, and is being retried
		store.Take("foreign", lease)
		store.Free()
		time.Sleep(retry + moment)
		r.mustEnd(0, election.Deposed)
		r.client.HoldWatches(false)

		if second := r.mustLead(); second.Epoch() != first.Epoch()+2 {
			t.Errorf("leads in epoch %d after epoch %d and a foreign one", second.Epoch(), first.Epoch())
		}
	})
}

// Fact 2, second case: another leader appears while renewals fail.
func TestAForeignLeaderDuringFailingRenewalsEndsTheTermAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		r.mustLead()

		r.client.Always(electiontest.Fault{Err: errRefused}) // the watch lives
		time.Sleep(2 * retry)
		store.Take("foreign", lease)
		taken := time.Now()
		time.Sleep(moment)
		if took := r.mustEnd(0, election.Deposed).ended.Sub(taken); took > 0 {
			t.Errorf("worked on for %v after the watch told of another holder", took)
		}
		r.client.Always(electiontest.Fault{})
	})
}

// Fact 3: release reads the Lease again, but decides whether it leads by the old observation.
func TestReleaseNeverWipesASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		r.mustLead()
		r.client.HoldWatches(true)
		store.Take("foreign", lease)
		r.stop()
		if holder := store.Holder(); holder != "foreign" {
			t.Errorf("after the release the lease is held by %q, want its new holder", holder)
		}
	})
}

// Fact 4: client-go releases before it cancels the leading context, so on a black-holed connection the leader works
// past its lease. I6: what is left of the lease suffices for the drain.
func TestABlackHoleEndsTheTermAndItsDrainWithinTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(drain - time.Millisecond)
			return nil
		})
		defer r.stop()
		r.mustLead()
		time.Sleep(5 * retry)
		renewed := store.Lease().Spec.RenewTime.Time

		r.client.Always(electiontest.Fault{Hang: true})
		time.Sleep(2 * lease)
		ended := r.mustEnd(0, election.RenewDeadline)
		if worked := ended.ended.Sub(renewed); worked > lease-drain {
			t.Errorf("the term ended %v after its last renewal, too late for a drain of %v within %v", worked, drain, lease)
		}
		if !ended.joined.Before(renewed.Add(lease)) {
			t.Errorf("the work was joined %v after the last renewal, past the lease", ended.joined.Sub(renewed))
		}
		r.client.Always(electiontest.Fault{})
	})
}

// Fact 5: OnStartedLeading is never joined. I1: a term starts only after everything of the previous one is joined.
func TestNoTermStartsBeforeThePreviousIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			return nil
		})
		r.mustLead()
		for range 10 {
			store.Delete()
			time.Sleep(time.Second)
			store.Delete()
			time.Sleep(3 * time.Second)
		}
		r.stop()
		terms := r.all()
		if len(terms) < 8 {
			t.Fatalf("only %d terms", len(terms))
		}
		for i := 1; i < len(terms); i++ {
			if terms[i].began.Before(terms[i-1].joined) {
				t.Errorf("term %d began %v before term %d was joined", i, terms[i-1].joined.Sub(terms[i].began), i-1)
			}
		}
	})
}

// Fact 6: a cancelled acquire may be committed, and then nobody recognises the identity.
func TestAShutdownWaitsForTheAcquireUnderWayAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		client := electiontest.Fault{Delay: time.Second}
		r := start(t, store, nil, func(cfg *election.Config) {
			cfg.Client.(*electiontest.Client).Next(electiontest.Create, client)
		})
		time.Sleep(time.Second / 2)
		r.stop()
		if lease := store.Lease(); lease == nil || store.Holder() != "" {
			t.Errorf("after the shutdown the Lease is %v, want it written and released", lease)
		}
		if terms := r.all(); len(terms) != 0 {
			t.Errorf("led after the shutdown: %v", terms)
		}
	})
}

// Fact 6: an answer is lost in another way.
func TestALostReplyOfAnAcquireOrphansNothing(t *testing.T) {
	for _, ending := range []string{"lead on", "shut down"} {
		t.Run(ending, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				r := start(t, store, nil, func(cfg *election.Config) {
					cfg.Client.(*electiontest.Client).Next(electiontest.Create, electiontest.Fault{LoseReply: true})
				})
				if ending == "shut down" {
					time.Sleep(renew / 6)
					r.stop()
					if holder := store.Holder(); holder != "" {
						t.Errorf("after the shutdown %q holds the lease", holder)
					}
					return
				}
				time.Sleep(renew/3 + moment)
				if leads := r.mustLead(); leads.Epoch() != 2 {
					t.Errorf("leads in epoch %d, want 2: the orphan's has passed", leads.Epoch())
				}
				r.stop()
			})
		})
	}
}

// Fact 6: a delayed write commits after its caller has given up.
func TestALateCommitOfAnAcquireIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		late := electiontest.Fault{Delay: 2 * renew}
		r := start(t, store, nil, func(cfg *election.Config) {
			client := cfg.Client.(*electiontest.Client)
			client.Next(electiontest.Create, late, electiontest.Fault{Hang: true}, electiontest.Fault{Hang: true},
				electiontest.Fault{Hang: true}, electiontest.Fault{Hang: true}, electiontest.Fault{Hang: true})
		})
		defer r.stop()
		time.Sleep(2*renew + renew/3)
		r.mustLead()
		for i, change := range store.History()[:2] {
			if want := []string{"host_", ""}[i]; len(change.Holder()) < len(want) || (want == "") != (change.Holder() == "") {
				t.Errorf("change %d left holder %q", i, change.Holder())
			}
		}
	})
}

// Fact 7: a release that runs under a context which ends with the server is refused.
func TestTheReleaseOutlivesRunsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		r.mustLead()
		stopped := time.Now()
		r.stop()
		r.mustEnd(0, election.Shutdown)
		if store.Holder() != "" {
			t.Errorf("the lease is still held by %q", store.Holder())
		}
		if took := time.Since(stopped); took > time.Second+moment {
			t.Errorf("took %v, want the drain of 1s and a release", took)
		}
	})
}

// Fact 10: client-go's gauge stays at 1 when a term is cancelled between two renewals, and a standby has none.
func TestTheGaugeIsZeroFromTheStartAndAfterEveryTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", lease)
		r := start(t, store, nil)
		synctest.Wait()
		want := func(when string, value float64) {
			t.Helper()
			if got := gauge(t); got != value {
				t.Errorf("%s: leader_election_master_status is %v, want %v", when, got, value)
			}
		}
		want("standing by", 0)
		store.Free()
		r.mustLead()
		want("leading", 1)
		store.Take("foreign", lease)
		time.Sleep(moment)
		want("deposed", 0)
		store.Free()
		r.mustLead()
		want("leading again", 1)
		r.stop()
		want("stopped", 0)
	})
}
