package leader_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/programtest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
	"github.com/regent-project/regent/pkg/election/leader"
)

var (
	manyTerms = flag.Int("terms", 50, "how many terms the random tests take; make long-programs: 1000")
	seed      = flag.Uint64("seed", 1, "of the random tests")
)

const (
	programLease = 15 * time.Second
	// programSoon is longer than it takes until another leads, or this process says why it does not.
	programSoon = 2*programLease + 10*time.Second
)

// program is one process after another that leads, on a store whose requests fail at random, with work that does.
type program struct {
	t      *testing.T
	random *rand.Rand
	store  *electiontest.Store
	client *electiontest.Client
	job    *programtest.Job
}

// Whatever fails at random, at start, in a term and at its end: a process that leads works, one that does not says why,
// and each ends when it is asked to, and leaves nothing behind.
func TestWhateverFailsAtRandomALeaderWorksOrSaysWhyNotAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // a test
		store := electiontest.NewStore(leaseName)
		store.Fence()
		p := &program{t, random, store, store.Client(), programtest.NewJob(rand.New(rand.NewPCG(*seed, 1)), 30*time.Second)} //nolint:gosec // a test
		count := func() int { return seriestest.Count("name", leaseName) }
		goroutines, before := 0, count() // of other tests
		for n := 0; p.job.Terms() < *manyTerms; n++ {
			p.live()
			if t.Failed() {
				t.Fatalf("process %d, after %d terms", n, p.job.Terms())
			}
			synctest.Wait()
			now, shown := programtest.Goroutines(), count()
			if n == 0 {
				goroutines = now
			}
			if now > goroutines || shown > before {
				t.Fatalf("%d goroutines after process %d, %d after the first; %d series, %d before it", now, n, goroutines, shown, before)
			}
		}
		if p.job.Twice() {
			t.Error("the works of two terms ran at once")
		}
		t.Logf("%d terms", p.job.Terms())
	})
}

// live is the life of one process.
func (p *program) live() {
	cfg := config()
	cfg.SecretName, cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = "", 0, 0, 0
	cfg.Fenced = p.random.IntN(2) == 0
	var notReady error
	if p.random.IntN(10) == 0 {
		notReady = errors.New("not ready, by the test")
	}
	cfg.Ready = func(context.Context) error { return notReady }
	l, err := leader.New(&rest.Config{Host: "http://in.memory", Transport: electiontest.Wire(p.handler())}, cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.job.Mend(false)
	if p.random.IntN(2) == 0 {
		p.mishap()
	}
	if err := l.Start(p.t.Context(), func(ctx context.Context, _ election.Term) error { return p.job.Do(ctx) }); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	for range p.random.IntN(5) {
		p.pause(programLease)
		p.mishap()
		p.pause(programSoon)
		p.client.Always(electiontest.Fault{})
		if p.random.IntN(4) == 0 {
			p.store.Take("somebody else", programLease)
		}
		p.mustWorkIfItLeads(l)
	}
	if notReady == nil {
		p.mustRecover(l)
	}
	if p.random.IntN(2) == 0 {
		p.mishap()
		p.pause(programSoon)
	}
	p.mustEnd(l, notReady)
	p.client.Always(electiontest.Fault{})
	p.client.Wait()
	l.Elector().Close()
}

func (p *program) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(electiontest.LeasesPath, electiontest.Handler(p.client))
	return mux
}

func (p *program) pause(atMost time.Duration) {
	time.Sleep(time.Duration(p.random.Int64N(int64(atMost))))
	synctest.Wait()
}

func (p *program) mishap() {
	_, fault, of := electiontest.AnyMishap(p.random)
	p.client.Always(fault, of...)
}

// mustWorkIfItLeads checks that no process leads without work.
func (p *program) mustWorkIfItLeads(l *leader.Leader) {
	p.t.Helper()
	synctest.Wait()
	if s := l.Elector().Status(); s.State == "leading" && !p.job.Works() {
		p.t.Errorf("it leads, and nothing works: %+v", s)
	}
}

// mustRecover checks that a process whose work goes well says why it does not lead as long as something fails, and
// leads soon when nothing does.
func (p *program) mustRecover(l *leader.Leader) {
	p.t.Helper()
	p.job.Mend(true)
	time.Sleep(2 * programSoon) // what is late, ends
	name, fault, of := electiontest.AnyMishap(p.random)
	p.client.Always(fault, of...)
	time.Sleep(2 * programSoon) // a step down waits, too
	p.mustWorkIfItLeads(l)
	if s := l.Elector().Status(); !p.job.Works() && s.CannotRead+s.CannotStand+s.CannotWrite+s.Held == "" {
		p.t.Errorf("%v %s: it neither works nor says why: %+v", of, name, s)
	}
	p.client.Always(electiontest.Fault{})
	time.Sleep(2 * programSoon)
	p.mustWorkIfItLeads(l)
	if !p.job.Works() {
		p.t.Errorf("nothing fails any more, and it does not work: %+v", l.Elector().Status())
	}
	p.job.Mend(false)
	if p.random.IntN(2) == 0 {
		_, _ = l.Elector().StepDown("by the test", "")
		p.pause(programSoon)
	}
}

// mustEnd stops the process.
func (p *program) mustEnd(l *leader.Leader, want error) {
	p.t.Helper()
	began := time.Now()
	err := l.Stop()
	if took := time.Since(began); took > l.EndTimeout() {
		p.t.Errorf("Stop took %v, and %v at most by what it says", took, l.EndTimeout())
	}
	late := false
	select {
	case <-l.Done():
	default:
		late = true
	}
	if want != nil && !errors.Is(err, want) || want == nil && err != nil && !late {
		p.t.Errorf("Stop returned %v, want %v, late: %v", err, want, late)
	}
	<-l.Done()
	synctest.Wait()
	if p.job.Works() {
		p.t.Error("work goes on after the end")
	}
}
