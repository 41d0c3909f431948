package clientgo_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/clientgo"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/programtest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

var (
	manyTerms = flag.Int("terms", 50, "how many terms the random test takes; make long-programs: 1000")
	seed      = flag.Uint64("seed", 1, "of the random test")
)

// soon is longer than it takes until a process that can leads, or one that cannot says why, whatever of the work is
// late.
const soon = 4*lease + 20*time.Second

// dropIn is one process after another that calls Run again and again, on a store whose requests fail at random, with
// work that does.
type dropIn struct {
	t       *testing.T
	random  *rand.Rand
	store   *electiontest.Store
	client  *electiontest.Client
	job     *programtest.Job
	panics  int
	elector *clientgo.LeaderElector
}

// Whatever fails at random, at start, in a term and at its end: a process that leads works, one that does not says why,
// and each ends when it is asked to, and leaves nothing behind.
func TestWhateverFailsAtRandomADropInWorksOrSaysWhyNotAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Fence()
		d := &dropIn{
			t: t, random: rand.New(rand.NewPCG(*seed, 0)), store: store, client: store.Client(), //nolint:gosec // a test
			job: programtest.NewJob(rand.New(rand.NewPCG(*seed, 1)), 30*time.Second), //nolint:gosec // a test
		}
		goroutines := 0
		for n := 0; d.job.Terms() < *manyTerms; n++ {
			d.live()
			synctest.Wait()
			now, shown := programtest.Goroutines(), seriestest.Count("name", leaseName)
			if n == 0 {
				goroutines = now
			}
			if now > goroutines || shown > 0 {
				t.Errorf("%d goroutines, %d after the first process; %d series are left", now, goroutines, shown)
			}
			if t.Failed() {
				t.Fatalf("process %d, after %d terms", n, d.job.Terms())
			}
		}
		if d.job.Twice() {
			t.Error("the works of two terms ran at once")
		}
		if d.panics == 0 {
			t.Error("no panic has reached the program: this test shows little")
		}
		t.Logf("%d terms", d.job.Terms())
	})
}

// live is the life of one process.
func (d *dropIn) live() {
	fenced := d.random.IntN(2) == 0
	var adjusted election.Config
	var err error
	d.elector, err = clientgo.NewLeaderElector(newConfig(d.client, "me", &diary{}, func(ctx context.Context) {
		_ = d.job.Do(ctx) // a callback cannot fail but by a panic; if it returns, the process leads on
	}), func(cfg *election.Config) { cfg.Fenced = fenced; adjusted = *cfg })
	if err != nil {
		d.t.Fatal(err)
	}
	d.job.Mend(false)
	if d.random.IntN(2) == 0 {
		d.mishap()
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			d.run(ctx)
		}
	}()
	for range d.random.IntN(5) {
		d.pause(lease)
		d.mishap()
		d.pause(soon)
		d.client.Always(electiontest.Fault{})
		if d.random.IntN(4) == 0 {
			d.store.Take("somebody else", lease)
		}
		if s := d.elector.Elector().Status(); d.elector.IsLeader() && s.State != "leading" {
			d.t.Errorf("it says that it leads, and it does not: %+v", s)
		}
	}
	d.mustRecover()
	if d.random.IntN(2) == 0 {
		d.mishap()
		d.pause(soon)
	}
	cancel()
	began, late := time.Now(), d.job.Works()
	<-over
	if took := time.Since(began); took > adjusted.EndTimeout() && !(late && took <= 31*time.Second+adjusted.EndTimeout()) {
		d.t.Errorf("it took %v to end, at most %v by what it says", took, adjusted.EndTimeout())
	}
	d.client.Always(electiontest.Fault{})
	d.client.Wait()
	if d.job.Works() {
		d.t.Error("work goes on after the end")
	}
	d.elector.Elector().Close()
}

// run is one call of Run, of a program that goes on after a panic of its work.
func (d *dropIn) run(ctx context.Context) {
	defer func() {
		if recover() != nil {
			d.panics++
		}
	}()
	d.elector.Run(ctx)
}

func (d *dropIn) pause(atMost time.Duration) {
	time.Sleep(time.Duration(d.random.Int64N(int64(atMost))))
	synctest.Wait()
}

func (d *dropIn) mishap() {
	_, fault, of := electiontest.AnyMishap(d.random)
	d.client.Always(fault, of...)
}

// mustRecover checks that a process whose work goes well says why it does not lead as long as something fails, and
// leads soon when nothing does.
func (d *dropIn) mustRecover() {
	d.t.Helper()
	d.job.Mend(true)
	_, _ = d.elector.Elector().StepDown("by the test", "") // a callback that has returned keeps its term
	time.Sleep(soon)
	name, fault, of := electiontest.AnyMishap(d.random)
	d.client.Always(fault, of...)
	time.Sleep(soon)
	synctest.Wait()
	if s := d.elector.Elector().Status(); !d.job.Works() && s.CannotRead+s.CannotStand+s.CannotWrite+s.Held == "" {
		d.t.Errorf("%v %s: it neither works nor says why: %+v", of, name, s)
	}
	d.client.Always(electiontest.Fault{})
	time.Sleep(soon)
	synctest.Wait()
	if s := d.elector.Elector().Status(); !d.job.Works() || !d.elector.IsLeader() || s.State != "leading" {
		d.t.Errorf("nothing fails any more, and it does not work: %+v", s)
	}
	d.job.Mend(false)
}
