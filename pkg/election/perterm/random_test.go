package perterm_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/programtest"
	"github.com/regent-project/regent/pkg/election/perterm"
)

var (
	randomTerms = flag.Int("random-terms", 50, "how many terms TestWhateverFailsAtRandom... takes; make long-programs: 1000")
	seed        = flag.Uint64("seed", 1, "of that test")
)

// managers are one process after another, on a server and a store whose requests fail at random, with work that does.
type managers struct {
	*world
	random *rand.Rand
	client *electiontest.Client
	job    *programtest.Job

	mu     sync.Mutex // guards what setup reads
	setups *rand.Rand
	seen   int // how many kinds of setUp there were
	well   bool
}

// Whatever fails at random, at start, in a term and at its end: a manager that leads works, one that does not says why,
// and each ends when it is asked to, and leaves nothing behind.
func TestWhateverFailsAtRandomAManagerWorksOrSaysWhyNotAndEnds(t *testing.T) {
	p := &managers{
		random: rand.New(rand.NewPCG(*seed, 0)),                                           //nolint:gosec // a test
		job:    programtest.NewJob(rand.New(rand.NewPCG(*seed, 1)), 100*time.Millisecond), //nolint:gosec // a test
		setups: rand.New(rand.NewPCG(*seed, 2)),                                           //nolint:gosec // a test
	}
	s := newShelf(t)
	var goroutines map[string]int
	var shown map[string]bool
	for n := 0; p.job.Terms() < *randomTerms; n++ {
		p.live(t, s)
		if t.Failed() {
			t.Fatalf("process %d, after %d terms", n, p.job.Terms())
		}
		if p.job.Terms() < *randomTerms/2 { // connections are made, and what there is was seen once
			goroutines, shown = ownGoroutines(), series(t)
			continue
		}
		eventuallyNoMore(t, goroutines)
		checkSeries(t, shown)
	}
	if p.job.Twice() {
		t.Error("the works of two terms ran at once")
	}
	t.Logf("%d terms: %d series after half of them, %d at the end", p.job.Terms(), len(shown), len(series(t)))
}

// live is the life of one process.
func (p *managers) live(t *testing.T, s *shelf) {
	p.world = prepareOn(t, s, newProcess(t, s, func(o *manager.Options) {
		withSecrets(o, func(next http.RoundTripper) http.RoundTripper { return forbidding{next} })
		o.Controller.CacheSyncTimeout = 50 * time.Millisecond
	}), func(cfg *election.Config) {
		cfg.LeaseDuration, cfg.RenewDeadline = time.Second, 600*time.Millisecond
		cfg.Fenced = p.random.IntN(2) == 0
		p.client = cfg.Client.(*electiontest.Client)
	})
	p.mend(false)
	if p.random.IntN(2) == 0 {
		p.mishap()
	}
	p.begin(perterm.Options{Join: logLate(t)}, p.setUp)
	ctx, cancel := context.WithCancel(t.Context())
	var neighbour sync.WaitGroup
	neighbour.Go(func() { p.takeTurns(ctx) })
	for range 10 {
		p.pause(100 * time.Millisecond)
		_, _ = p.elector.StepDown("by the test", "")
		if p.random.IntN(3) == 0 {
			p.mishap()
			p.pause(250 * time.Millisecond)
			p.client.Always(electiontest.Fault{})
		}
	}
	p.mustRecover()
	cancel()
	neighbour.Wait()
	if p.random.IntN(2) == 0 {
		p.mishap()
	}
	p.stop()
	p.client.Always(electiontest.Fault{})
	p.client.Wait()
	if p.job.Works() {
		t.Error("work goes on after the end")
	}
	p.elector.Close()
}

// setUp is the function of the terms. Half of them are as they should be.
func (p *managers) setUp(m *perterm.Manager) error {
	p.mu.Lock()
	what := p.setups.IntN(8)
	switch {
	case p.well:
		what = 7
	case p.seen < 4: // each kind once, before what there is is counted
		what = p.seen
		p.seen++
	}
	p.mu.Unlock()
	switch what {
	case 0:
		return errors.New("broken, by the test")
	case 1:
		panic("broken, by the test")
	case 2: // a kind that cannot be had
		if err := ctrl.NewControllerManagedBy(m).Named("secrets").For(&corev1.Secret{}).WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
			Complete(&clerk{Client: m.GetClient(), m: m}); err != nil {
			return err
		}
	case 3: // a goroutine that is left, and late
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			go func() { <-ctx.Done(); <-time.After(100 * time.Millisecond) }()
			return nil
		})); err != nil {
			return err
		}
	}
	if err := m.Add(manager.RunnableFunc(p.job.Do)); err != nil {
		return err
	}
	return setUp(m, nil)
}

// takeTurns is another replica that leads for a moment whenever nobody does, so that this one does not rest after work
// that has failed.
func (p *managers) takeTurns(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.store.Holder() == "" && p.elector.Status().State == "standing by" {
			p.store.Take("a neighbour", time.Second)
			// it says nothing of its predecessor
			p.store.Edit(func(lease *coordinationv1.Lease) { lease.Annotations, lease.Spec.HolderIdentity = nil, ptr.To("") })
		}
	}
}

func (p *managers) mend(so bool) {
	p.job.Mend(so)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.well = so
}

func (p *managers) pause(atMost time.Duration) {
	<-time.After(time.Duration(p.random.Int64N(int64(atMost))))
}

func (p *managers) mishap() {
	_, fault, of := electiontest.AnyMishap(p.random)
	p.client.Always(fault, of...)
}

// mustRecover checks that a process whose work goes well says why it does not lead as long as something fails, and
// leads soon when nothing does.
func (p *managers) mustRecover() {
	p.t.Helper()
	p.mend(true)
	_, _ = p.elector.StepDown("by the test", "") // a runnable that has returned keeps its term
	name, fault, of := electiontest.AnyMishap(p.random)
	p.client.Always(fault, of...)
	eventually(p.t, name+": it works, or says why it does not", func() bool {
		s := p.elector.Status()
		return p.works() || s.CannotRead+s.CannotStand+s.CannotWrite+s.Held != ""
	})
	p.client.Always(electiontest.Fault{})
	eventually(p.t, "it works, since nothing fails any more", p.works)
	epoch := p.elector.Status().Epoch
	p.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}})
	eventually(p.t, "its controllers work", func() bool { return p.look("one")["epoch"] != "" || p.elector.Status().Epoch != epoch })
	p.mend(false)
}

func (p *managers) works() bool { return p.job.Works() && p.elector.Status().State == "leading" }
