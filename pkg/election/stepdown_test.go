package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/series"
)

func TestAStepDownOnRequestLetsAnotherLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		a := start(t, store, nil)
		defer a.stop()
		a.mustLead()
		b := start(t, store, nil)
		defer b.stop()
		time.Sleep(moment)
		if _, err := b.elector.StepDown("try", ""); !errors.Is(err, election.ErrNotLeading) {
			t.Errorf("a standby stepped down: %v", err)
		}
		term, err := a.elector.StepDown("a better one is here", "")
		if err != nil || term.Epoch() != 1 {
			t.Errorf("stepped down from %v, %v", term, err)
		}
		if leads := b.mustLead(); leads.Epoch() != 2 {
			t.Errorf("leads in epoch %d", leads.Epoch())
		}
		a.mustEnd(0, election.StepDown)
		if why := fmt.Sprint(store.History()[1].Lease.Annotations); !strings.Contains(why, "a better one is here") {
			t.Errorf("the Lease does not say why: %s", why)
		}
		if _, err := a.elector.StepDown("again", ""); !errors.Is(err, election.ErrNotLeading) {
			t.Errorf("stepped down twice: %v", err)
		}
	})
}

// Whoever sees that a process leads may ask it to step down. The notice comes first, before the work begins.
func TestATermCanBeAskedToEndAsSoonAsItCanBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *replica
		started, asked := make(chan struct{}), make(chan error, 100)
		r = start(t, electiontest.NewStore(leaseName), nil, func(cfg *election.Config) {
			cfg.Notify = func(n election.Notice) {
				if n.Reason == election.Acquired {
					<-started
					_, err := r.elector.StepDown("at once", "")
					asked <- err
				}
			}
		})
		close(started)
		defer r.stop()
		time.Sleep(10 * retry)
		if len(asked) < 2 {
			t.Fatalf("%d terms were asked", len(asked))
		}
		for len(asked) > 0 {
			if err := <-asked; err != nil {
				t.Errorf("asked to step down, it says: %v", err)
			}
		}
	})
}

func TestALoneReplicaLeadsAgainARetryPeriodAfterEachStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, electiontest.NewStore(leaseName), nil)
		defer r.stop()
		for range 10 {
			r.mustLead()
			if _, err := r.elector.StepDown("again", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(retry)
		}
		r.mustLead()
	})
}

func TestWorkThatStepsDownByItselfBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, electiontest.NewStore(leaseName), func(context.Context, election.Term) error { return election.StepDown })
		defer r.stop()
		time.Sleep(10 * time.Minute)
		terms := r.all()
		for i, want := 1, time.Second; i < len(terms); i, want = i+1, min(2*want, time.Minute) {
			if rest, atLeast := terms[i].began.Sub(terms[i-1].joined), max(want, retry); rest < atLeast || rest > atLeast+moment {
				t.Errorf("rested %v after step down %d, want %v", rest, i, atLeast)
			}
		}
		if len(terms) < 10 {
			t.Errorf("only %d terms in ten minutes", len(terms))
		}
	})
}

func TestATermThatFailedAndThenHungIsNoHealthyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, electiontest.NewStore(leaseName), func(ctx context.Context, leads election.Term) error {
			election.Fail(ctx, errors.New("cannot"))
			time.Sleep(5 * time.Minute)
			return nil
		})
		time.Sleep(30 * time.Minute)
		terms := r.all()
		for i, want := 1, time.Second; i < len(terms)-1; i, want = i+1, 2*want {
			if rest := terms[i].began.Sub(terms[i-1].joined); rest > want+moment || i > 1 && rest < want-moment {
				t.Errorf("rested %v after failure %d, want %v", rest, i, want)
			}
		}
		if len(terms) < 5 {
			t.Errorf("only %d terms", len(terms))
		}
		r.stop()
	})
}

// broken is an error that names the parts that failed.
type broken struct{ error }

func (broken) FailedParts() []string { return []string{"one", "two"} }

func TestTheNextTermKnowsWhatTheLastOneFailedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told [][]string
		r := start(t, electiontest.NewStore(leaseName), func(ctx context.Context, leads election.Term) error {
			told = append(told, leads.FailedParts())
			switch leads.Epoch() {
			case 1:
				return fmt.Errorf("wrapped: %w", broken{errors.New("cannot")})
			case 2:
				return errors.New("cannot, and does not know why")
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Minute)
		r.stop()
		if want := [][]string{nil, {"one", "two"}, nil}; !slices.EqualFunc(told, want, slices.Equal) {
			t.Errorf("the terms were told %v, want %v", told, want)
		}
	})
}

func TestPeopleAreToldOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		var mu sync.Mutex
		var told []string
		hangs := make(chan struct{})
		r := start(t, store, func(ctx context.Context, leads election.Term) error {
			<-ctx.Done()
			if leads.Epoch() == 3 {
				<-hangs
			}
			return nil
		}, func(cfg *election.Config) {
			cfg.Notify = func(n election.Notice) {
				mu.Lock()
				defer mu.Unlock()
				if n.Message == "" || strings.Contains(n.Message, "\n") {
					t.Errorf("%s says %q", n.Reason, n.Message)
				}
				told = append(told, fmt.Sprintf("%s %v", n.Reason, n.Warning))
			}
		})
		r.mustLead()
		store.Take("stranger", time.Second)
		time.Sleep(2 * time.Second)
		r.mustLead()
		if _, err := r.elector.StepDown("enough", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(drain + moment)
		close(hangs)
		time.Sleep(time.Minute)
		r.stop()
		mu.Lock()
		defer mu.Unlock()
		want := []string{"LeaseAcquired false", "LeaseLost true", "LeaseAcquired false", "TermEnded false", "Quarantined true",
			"QuarantineEnded false", "LeaseAcquired false", "TermEnded false"}
		if !slices.Equal(told, want) {
			t.Errorf("told %v", told)
		}
	})
}

func TestMetricsTellOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		before := samples()
		r := start(t, store, nil)
		r.mustLead()
		if got := samples()["regent_election_seconds_without_leader"]; got != 0 {
			t.Errorf("%v s without a leader, while it leads", got)
		}
		store.Take("stranger", 20*time.Second)
		time.Sleep(10 * time.Second)
		if got := samples()["regent_election_seconds_without_leader"]; got != 0 {
			t.Errorf("%v s without a leader, while a stranger holds the lease", got)
		}
		r.client.Always(electiontest.Fault{Err: errRefused})
		time.Sleep(40 * time.Second)
		after := samples()
		for name, want := range map[string]float64{
			"regent_election_seconds_without_leader": 30, "regent_election_epoch": 2, "regent_election_quarantined": 0,
		} {
			if got := after[name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		for name, want := range map[string]float64{
			"regent_election_terms_started_total": 1, "regent_election_terms_ended_total deposed": 1,
			"regent_election_terms_ended_total failed": 0, "regent_election_terms_ended_total on request": 0, "regent_election_drain_seconds": 1, "leader_election_slowpath_total": 0,
		} {
			if got := after[name] - before[name]; got != want {
				t.Errorf("%s grew by %v, want %v", name, got, want)
			}
		}
		r.client.Always(electiontest.Fault{})
		time.Sleep(time.Minute)
		r.mustLead()
		r.stop()
	})
}

// samples returns the elector's metrics, by name and cause.
func samples() map[string]float64 {
	got := map[string]float64{}
	for _, f := range series.All() {
		for _, s := range f.Read() {
			if len(f.Labels) > 0 && f.Labels[0] == "name" && s.Values[0] == leaseName {
				got[strings.Join(append([]string{f.Name}, s.Values[1:]...), " ")] = s.Value + float64(s.Count)
			}
		}
	}
	return got
}
