package election_test

import (
	"context"
	"errors"
	"fmt"
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

func TestAStandbyNeitherWritesNorPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		leader := start(t, store, nil)
		defer leader.stop()
		leader.mustLead()
		standby := start(t, store, nil)
		defer standby.stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		for request, want := range map[electiontest.Request]int{
			electiontest.Create: 0, electiontest.Update: 0, electiontest.Watch: 1,
			electiontest.List: 1 + 60, // the first, and one a minute
		} {
			if n := standby.client.Count(request); n != want {
				t.Errorf("%d requests to %s in an hour, want %d", n, request, want)
			}
		}
		if n := len(leader.all()); n != 1 {
			t.Errorf("%d terms of a leader that nobody disturbs", n)
		}
	})
}

func TestARenewalIsOneWritePerRetryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		r.mustLead()
		time.Sleep(time.Hour)
		if n, want := r.client.Count(electiontest.Update), int(time.Hour/retry); n > want || n < want-1 {
			t.Errorf("%d writes in an hour, want %d", n, want)
		}
	})
}

func TestAReleaseIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		leader := start(t, store, nil)
		leader.mustLead()
		standby := start(t, store, nil)
		defer standby.stop()
		time.Sleep(time.Minute)
		stopped := time.Now()
		leader.stop()
		synctest.Wait()
		terms := standby.all()
		if len(terms) != 1 || !terms[0].began.Equal(stopped) {
			t.Errorf("released at %v, terms of the standby: %v", stopped, terms)
		}
	})
}

func TestAVanishedHoldersLeaseCostsOneDurationNotTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		r.mustLead()
		store.Take("vanished", lease)
		vanished := time.Now()
		time.Sleep(lease)
		if took := r.mustLead().began.Sub(vanished); took != lease {
			t.Errorf("leads %v after the last renewal, want %v", took, lease)
		}
	})
}

func TestAnExpiryIsTakenByOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("vanished", lease)
		r := start(t, store, nil)
		defer r.stop()
		time.Sleep(lease)
		r.mustLead()
		if n := r.client.Count(electiontest.Update); n != 1 {
			t.Errorf("%d writes, want one that takes the lease over", n)
		}
		if n := r.client.Count(electiontest.List); n != 1 {
			t.Errorf("%d reads, want none after the first", n)
		}
	})
}

// A lease has expired when holder, epoch and renewTime have not changed for its duration on our clock. The value of
// renewTime does not matter.
func TestTheHoldersClockDoesNotMatter(t *testing.T) {
	for name, skew := range map[string]time.Duration{"behind": -24 * time.Hour, "ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				store.Take("foreign", lease)
				r := start(t, store, nil)
				defer r.stop()
				for range 20 {
					time.Sleep(lease - time.Second)
					store.Edit(func(l *coordinationv1.Lease) {
						l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(skew)))
					})
				}
				if terms := r.all(); len(terms) != 0 {
					t.Fatalf("led although the holder renewed: %v", terms)
				}
				time.Sleep(lease)
				r.mustLead()
			})
		})
	}
}

func TestAnotherEditOfTheLeaseDoesNotProlongIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("vanished", lease)
		r := start(t, store, nil)
		defer r.stop()
		time.Sleep(lease / 2)
		store.Edit(label)
		time.Sleep(lease / 2)
		r.mustLead()
	})
}

// The takeover is a compare-and-swap on what was judged, never on a fresh read: the holder may be back.
func TestAStandbyThatMissedARenewalDoesNotTakeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", lease)
		r := start(t, store, nil)
		defer r.stop()
		time.Sleep(moment)
		r.client.HoldWatches(true)
		time.Sleep(lease - time.Second)
		store.Renew()
		time.Sleep(time.Second)
		if store.Holder() != "foreign" {
			t.Errorf("took a lease that was renewed a second ago")
		}
		// Its failed write makes it read. It then waits for the whole duration again.
		writes := r.client.Count(electiontest.Update)
		time.Sleep(lease - 2*time.Second)
		if n := r.client.Count(electiontest.Update); n != writes {
			t.Errorf("tried %d more times while the lease was valid", n-writes)
		}
		r.client.HoldWatches(false)
	})
}

func TestALabelDeposesNobodyAndStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		r.mustLead()
		for range 20 {
			store.Edit(label)
			time.Sleep(retry)
		}
		if n := len(r.all()); n != 1 {
			t.Errorf("%d terms, want one: a label is no foreign term", n)
		}
		store.Edit(label) // right before the release, too
		r.stop()
		if lease := store.Lease(); store.Holder() != "" || lease.Labels["edited"] != "yes" {
			t.Errorf("want the lease released and the label kept: %v", lease)
		}
	})
}

func label(l *coordinationv1.Lease) { l.Labels = map[string]string{"edited": "yes"} }

func TestLateNewsOfALowerEpochDeposesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", lease)
		r := start(t, store, nil)
		defer r.stop()
		time.Sleep(moment)
		r.client.HoldWatches(true)
		store.Renew()
		store.Free()
		r.client.Always(electiontest.Fault{})
		time.Sleep(time.Minute) // the safety read finds the lease free
		r.mustLead()
		r.client.HoldWatches(false) // now come the foreign renewal and the release
		time.Sleep(time.Minute)
		if n := len(r.all()); n != 1 {
			t.Errorf("%d terms, want one", n)
		}
	})
}

func TestAWatchThatMissesChangesIsFoundOutWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", 10*lease)
		r := start(t, store, nil)
		defer r.stop()
		time.Sleep(moment)
		r.client.HoldWatches(true)
		defer r.client.HoldWatches(false)
		store.Free()
		time.Sleep(time.Minute)
		r.mustLead()
	})
}

func TestTheWatchSurvivesCompactionAndOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", time.Hour)
		r := start(t, store, nil)
		defer r.stop()
		for range 5 {
			time.Sleep(moment)
			r.client.DropWatches()
		}
		r.client.Always(electiontest.Fault{Err: errRefused})
		r.client.DropWatches()
		reads := r.client.Count(electiontest.List)
		time.Sleep(10 * time.Minute)
		if n := r.client.Count(electiontest.List) - reads; n > int(10*time.Minute/retry)+20 {
			t.Errorf("%d reads in an outage of ten minutes, want one per retry period", n)
		}
		r.client.Always(electiontest.Fault{})
		store.Free()
		time.Sleep(retry)
		r.mustLead()
	})
}

func TestAnOldIdentityOfOursIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		defer r.stop()
		old := r.mustLead().Token().Holder
		store.Delete()
		r.mustLead()
		store.Take(old, lease)
		if leads := r.mustLead(); leads.Epoch() != 4 {
			t.Errorf("leads in epoch %d, want 4: the old identity's was 3", leads.Epoch())
		}
		r.mustEnd(1, election.Deposed)
	})
}

func TestALostReplyOfAReleaseLeavesTheLeaseFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		r.mustLead()
		r.client.Next(electiontest.Update, electiontest.Fault{LoseReply: true})
		r.stop()
		if holder := store.Holder(); holder != "" {
			t.Errorf("held by %q", holder)
		}
		if n := r.client.Count(electiontest.Update); n != 1 {
			t.Errorf("released with %d writes, want one", n)
		}
	})
}

func TestALostReleaseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		r.mustLead()
		r.client.Next(electiontest.Update, electiontest.Fault{Err: errRefused})
		r.stop()
		if holder := store.Holder(); holder != "" {
			t.Errorf("held by %q", holder)
		}
	})
}

func TestAReleaseThatComesLateStillSaysWhyTheTermEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		fails := make(chan struct{})
		r := start(t, store, func(ctx context.Context, leads election.Term) error {
			select {
			case <-fails:
				return errors.New("cannot work")
			case <-ctx.Done():
				return nil
			}
		})
		defer r.stop()
		r.mustLead()
		r.client.Always(electiontest.Fault{Err: errRefused})
		close(fails)
		time.Sleep(renew)
		r.client.Always(electiontest.Fault{})
		time.Sleep(lease)
		freed := store.History()[1]
		if why := fmt.Sprint(freed.Lease.Annotations); freed.Holder() != "" || !strings.Contains(why, "cannot work") {
			t.Errorf("holder %q, annotations %s: want the lease cleared, with the cause", freed.Holder(), why)
		}
	})
}

func TestADeletedLeaseIsCreatedInALaterEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		for range 6 {
			store.Take("foreign", lease)
		}
		r := start(t, store, nil)
		defer r.stop()
		time.Sleep(moment)
		store.Delete()
		if leads := r.mustLead(); leads.Epoch() != 7 {
			t.Errorf("leads in epoch %d, want 7", leads.Epoch())
		}
		store.Delete()
		time.Sleep(moment)
		r.mustEnd(0, election.Deposed)
		if leads := r.mustLead(); leads.Epoch() != 8 {
			t.Errorf("leads in epoch %d, want 8", leads.Epoch())
		}
	})
}

func TestTwoLosersOfARaceStandBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Take("foreign", lease)
		replicas := []*replica{start(t, store, nil), start(t, store, nil), start(t, store, nil)}
		time.Sleep(moment)
		store.Free()
		time.Sleep(time.Minute)
		var led, writes int
		for _, r := range replicas {
			led += len(r.all())
			if len(r.all()) == 0 {
				writes += r.client.Count(electiontest.Update)
			}
		}
		if led != 1 || writes > 2 {
			t.Errorf("%d terms, and the losers wrote %d times, want one each at most", led, writes)
		}
		for _, r := range replicas {
			r.stop()
		}
	})
}
