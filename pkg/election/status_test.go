package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

func reachable(url string) func(*election.Config) {
	return func(cfg *election.Config) { cfg.URL, cfg.Instance = url, "at "+url }
}

// must fails the test if a Status differs from the wanted one, the times aside.
func (r *replica) must(want election.Status) {
	r.t.Helper()
	times := cmpopts.IgnoreFields(election.Status{}, "Began", "Renewed", "Leaderless", "Past")
	if diff := cmp.Diff(want, r.elector.Status(), times); diff != "" {
		r.t.Errorf("the status differs (-want +got):\n%s", diff)
	}
}

func TestAStatusSaysWhoLeadsAndWhereItIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		leader := start(t, store, nil, detectBy(network.join("a"), "", true), reachable("https://a"))
		began := time.Now()
		leads := leader.mustLead()
		standby := start(t, store, nil, detectBy(network.join("b"), "", true), reachable("https://b"), func(cfg *election.Config) { cfg.Priority = 3 })
		time.Sleep(retry / 2)
		holder := leads.Token().Holder
		follows := election.Standby{Replica: "b", Instance: "at https://b", Mode: "lease", Priority: 3, URL: "https://b"}
		leader.must(election.Status{State: "leading", Mode: "lease", Epoch: 1, Holder: holder, Leader: "a", LeaderInstance: "at https://a", LeaderURL: "https://a", Duration: lease, Trigger: election.TriggerNone, Standbys: []election.Standby{follows}})
		standby.must(election.Status{State: "standing by", Mode: "lease", Priority: 3, Epoch: 1, Holder: holder, Leader: "a", LeaderInstance: "at https://a", LeaderURL: "https://a", Duration: lease})
		if s := standby.elector.Status(); s.Leaderless != 0 || s.Began.Sub(began).Abs() > moment || s.Renewed.Before(s.Began) {
			t.Errorf("began %v, renewed %v, without a leader for %v; the term began %v", s.Began, s.Renewed, s.Leaderless, began)
		}
		if _, err := leader.elector.StepDown("to see b lead", "b"); err != nil {
			t.Fatal(err)
		}
		standby.mustLead()
		got := standby.elector.Status()
		if got.State != "leading" || got.Epoch != 2 || got.Leader != "b" || got.LastStepDown == "" || got.Trigger != election.TriggerRelease {
			t.Errorf("after the step down: %+v", got)
		}
		if got := leader.elector.Status(); got.Trigger != "" {
			t.Errorf("who leads no more still says why it led: %+v", got)
		}
		// The beginning of the reason is relied on: package status of the server tells by it who asked for the
		// end of a term.
		if p := got.Past; len(p) != 1 || p[0].Epoch != 1 || p[0].Holder != holder || p[0].Replica != "a" || p[0].Cause != string(election.StepDown) || !strings.HasPrefix(p[0].Reason, "step down: on request: ") || !strings.Contains(p[0].Reason, "to see b lead") || p[0].Began.IsZero() || p[0].Ended.Before(p[0].Began) {
			t.Errorf("of the term before: %+v", p)
		}
		standby.stop()
		synctest.Wait() // until the other one has seen that
		leader.stop()
		if got := leader.elector.Status(); got.State != "stopped" || got.Holder != "" || !got.Began.IsZero() || got.Leader != "" {
			t.Errorf("after the end: %+v", got)
		}
		time.Sleep(time.Minute)
		if got := leader.elector.Status(); got.Leaderless < time.Minute {
			t.Errorf("a minute later nobody leads since %v", got.Leaderless)
		}
	})
}

// Whoever holds the lease is told of when it changes, and not for each renewal.
// The Lease changes while somebody asks. Nobody is told the holder of one term with the epoch of another.
func TestAStatusIsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		r := start(t, store, nil)
		first := r.mustLead().Epoch()
		for n := range int64(2000) {
			holder := fmt.Sprint("other-", n)
			store.Take(holder, lease)
			for {
				s := r.elector.Status()
				if text, ok := strings.CutPrefix(s.Holder, "other-"); ok && text != fmt.Sprint(s.Epoch-first-1) {
					t.Fatalf("holder %s with epoch %d", s.Holder, s.Epoch)
				}
				if s.Holder == holder {
					break
				}
				runtime.Gosched()
			}
		}
	})
}

func TestEachHolderIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		leader := start(t, store, nil, detectBy(network.join("a"), "", true))
		leader.mustLead()
		changes := 0
		standby := start(t, store, nil, detectBy(network.join("b"), "", true), func(cfg *election.Config) { cfg.Changed = func() { changes++ } })
		time.Sleep(10 * retry)
		synctest.Wait()
		if changes != 1 {
			t.Errorf("%d changes while one leads, want 1", changes)
		}
		leader.stop()
		standby.mustLead()
		synctest.Wait()
		if changes < 2 || changes > 3 { // that nobody holds the lease may be over before anybody looks
			t.Errorf("%d changes after the lease was released and taken, want 2 or 3", changes)
		}
	})
}

func TestAStatusShowsThatATermsWorkDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		r := start(t, electiontest.NewStore(leaseName), func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			<-wake
			return errors.New("late")
		})
		r.mustLead()
		if _, err := r.elector.StepDown("to see it hang", ""); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			after time.Duration
			state string
		}{{drain / 2, "draining"}, {drain, "quarantined"}} {
			time.Sleep(want.after)
			if got := r.elector.Status().State; got != want.state {
				t.Errorf("after %v it is %s, want %s", want.after, got, want.state)
			}
		}
		close(wake)
		time.Sleep(moment)
		if got := r.elector.Status().State; got == "quarantined" {
			t.Error("quarantined after the work has stopped")
		}
		r.stop()
	})
}

func TestAStatusSaysWhatPeopleWereTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		holdForLife(store, ``)
		r := start(t, store, nil, detectBy(newNetwork().join("b"), "", true))
		time.Sleep(2 * lease)
		got := r.elector.Status()
		if !got.Unaccounted || !got.OtherMode || got.Holder != "stranger" || got.Leaderless == 0 || got.Duration != 0 {
			t.Errorf("while a stranger that is not heard leads for life: %+v", got)
		}
		store.Edit(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })
		time.Sleep(time.Minute)
		if got := r.elector.Status(); got.Unaccounted || got.OtherMode || got.State != "leading" {
			t.Errorf("when it leads itself: %+v", got)
		}
		r.stop()
	})
}

func TestAStatusSaysThatTheLeaseCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, electiontest.NewStore(leaseName), nil, func(cfg *election.Config) {
			cfg.Client.(*electiontest.Client).Always(electiontest.Fault{Err: errRefused}, electiontest.List)
		})
		time.Sleep(10 * time.Second)
		if got := r.elector.Status(); !strings.Contains(got.CannotRead, errRefused.Error()) || got.State != "standing by" {
			t.Errorf("while it cannot read the Lease: %+v", got)
		}
		r.client.Always(electiontest.Fault{})
		time.Sleep(retry)
		r.mustLead()
		if got := r.elector.Status().CannotRead; got != "" {
			t.Errorf("when it leads, it cannot read the Lease: %s", got)
		}
		r.stop()
	})
}

func TestAStatusWithoutElectionNamesTheProcessItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startUnelected(t, electiontest.NewStore(leaseName), reachable("https://a"), func(cfg *election.Config) { cfg.Replica = "a" })
		r.mustLead()
		r.must(election.Status{State: "leading", Leader: "a", LeaderInstance: "at https://a", LeaderURL: "https://a"})
		r.stop()
	})
}
