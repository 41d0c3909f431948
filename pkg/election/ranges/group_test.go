package ranges

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

const (
	lasts = 15 * time.Second
	retry = 2 * time.Second
	// moment is longer than anything takes for which nobody has to wait.
	moment = 100 * time.Millisecond
)

var errDone = errors.New("the test is done")

// process is one process of a Group.
type process struct {
	*Group
	t      *testing.T
	name   string
	client *electiontest.Client
	drains time.Duration // how long the work of a term takes to stop
	end    context.CancelCauseFunc
	ended  chan error

	mu    sync.Mutex
	leads map[int]time.Time // since when, by range
	terms map[int]int
	at    *workplace
}

// workplace is what is worked at by all processes of a store.
type workplace struct {
	mu    sync.Mutex
	works map[Range]string // who, by range
}

// workplaces are those of all elections.
var workplaces sync.Map

type electionOf struct {
	store *electiontest.Store
	name  string
}

// begin fails the test if somebody works already at a key of the range.
func (w *workplace) begin(t *testing.T, of Range, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, by := range w.works {
		for key := range 1000 {
			if key := strconv.Itoa(key); of.Has(key) && other.Has(key) {
				t.Errorf("%s begins to work in range %v, and %s works in %v: both have key %s", who, of, by, other, key)
				break
			}
		}
	}
	w.works[of] = who
}

func (w *workplace) end(of Range, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.works[of] == who {
		delete(w.works, of)
	}
}

// dies says that the process works no more, although the test lets it go on.
func (p *process) dies() {
	p.at.mu.Lock()
	defer p.at.mu.Unlock()
	maps.DeleteFunc(p.at.works, func(_ Range, by string) bool { return by == p.name })
}

// newProcess makes a process on a store of n ranges.
func newProcess(t *testing.T, store *electiontest.Store, name string, n int, change ...func(*election.Config)) *process {
	t.Helper()
	p := &process{t: t, name: name, client: store.Client(), ended: make(chan error, 1), leads: map[int]time.Time{}, terms: map[int]int{}}
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Replica, cfg.Instance, cfg.Client = "kube-system", "group", name, name+"_1", p.client
	for _, c := range change {
		c(&cfg)
	}
	at, _ := workplaces.LoadOrStore(electionOf{store, cfg.Name}, &workplace{works: map[Range]string{}})
	p.at = at.(*workplace)
	var err error
	if p.Group, err = New(Config{Election: cfg, Ranges: n}); err != nil {
		t.Fatal(err)
	}
	return p
}

// join starts a process on a store of n ranges.
func join(t *testing.T, store *electiontest.Store, name string, n int, change ...func(*election.Config)) *process {
	t.Helper()
	p := newProcess(t, store, name, n, change...)
	p.run(p.lead)
	return p
}

// run starts the process.
func (p *process) run(lead LeadFunc) {
	ctx, end := context.WithCancelCause(p.t.Context())
	p.end = end
	go func() { p.ended <- p.Run(ctx, lead) }()
}

func (p *process) lead(ctx context.Context, of Range, _ election.Term) error {
	k := of.Index
	p.at.begin(p.t, of, p.name)
	defer p.at.end(of, p.name)
	p.mu.Lock()
	p.leads[k] = time.Now()
	p.terms[k]++
	p.mu.Unlock()
	<-ctx.Done()
	time.Sleep(p.drains)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leads, k)
	return nil
}

// share returns which ranges the process leads, and since when.
func (p *process) share() map[int]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.leads)
}

// stop ends the process in an orderly way.
func (p *process) stop() {
	p.t.Helper()
	p.end(errDone)
	if err := <-p.ended; err != errDone {
		p.t.Errorf("Run returned %v", err)
	}
	p.client.Wait()
}

// sizes returns how many ranges each process leads. No range may have two leaders.
func sizes(t *testing.T, processes ...*process) (counts []int) {
	t.Helper()
	leaders := map[int]string{}
	for _, p := range processes {
		share := p.share()
		for k := range share {
			if other := leaders[k]; other != "" {
				t.Errorf("range %d is led by %s and %s", k, other, p.name)
			}
			leaders[k] = p.name
		}
		counts = append(counts, len(share))
	}
	return counts
}

// I17: whoever is alone leads all; who comes gets a share, and nothing else moves; who goes leaves its share to all
// others, and their terms go on.
func TestAProcessThatComesGetsItsShareAndOneThatGoesLeavesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 16
		store := electiontest.NewStore("group")
		a := join(t, store, "a", n)
		time.Sleep(moment)
		if got := sizes(t, a); !slices.Equal(got, []int{n}) {
			t.Fatalf("the first leads %v", got)
		}
		b := join(t, store, "b", n)
		time.Sleep(moment)
		before := a.share()
		if got := sizes(t, a, b); !slices.Equal(got, []int{n, 0}) {
			t.Errorf("at once they lead %v", got)
		}
		time.Sleep(2 * lasts)
		if got := sizes(t, a, b); !slices.Equal(got, []int{n / 2, n / 2}) {
			t.Fatalf("they lead %v", got)
		}
		for k, since := range a.share() {
			if !since.Equal(before[k]) {
				t.Errorf("the term of range %d, which did not move, is another", k)
			}
		}
		c, d := join(t, store, "c", n), join(t, store, "d", n)
		time.Sleep(3 * lasts)
		if got := sizes(t, a, b, c, d); !slices.Equal(got, []int{4, 4, 4, 4}) {
			t.Fatalf("they lead %v", got)
		}
		kept := a.share()
		b.stop()
		time.Sleep(moment)
		got := sizes(t, a, c, d)
		if slices.Sort(got); !slices.Equal(got, []int{5, 5, 6}) {
			t.Errorf("when one has gone they lead %v", got)
		}
		after := a.share()
		for k, since := range kept {
			if !since.Equal(after[k]) {
				t.Errorf("range %d of a process that stays is led since %v, before since %v", k, after[k], since)
			}
		}
		for _, p := range []*process{a, c, d} {
			p.stop()
		}
		if left := store.Others(); len(left) != n {
			t.Errorf("these are left: %q", left)
		}
	})
}

// A process that cannot reach the store any more leads nothing before anybody else does, and its share is spread.
func TestTheShareOfAProcessThatIsCutOffIsSpreadWhenItsPresenceHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12
		store := electiontest.NewStore("group")
		a, b, c := join(t, store, "a", n), join(t, store, "b", n), join(t, store, "c", n)
		time.Sleep(4 * lasts)
		if got := sizes(t, a, b, c); !slices.Equal(got, []int{4, 4, 4}) {
			t.Fatalf("they lead %v", got)
		}
		a.client.Always(electiontest.Fault{Hang: true})
		for range 40 {
			time.Sleep(lasts / 20)
			sizes(t, a, b, c)
		}
		if got := sizes(t, a, b, c); !slices.Equal(got, []int{0, 6, 6}) {
			t.Errorf("they lead %v", got)
		}
		a.client.Always(electiontest.Fault{})
		time.Sleep(4 * lasts)
		if got := sizes(t, a, b, c); !slices.Equal(got, []int{4, 4, 4}) {
			t.Errorf("when it is back they lead %v", got)
		}
		for _, p := range []*process{a, b, c} {
			p.stop()
		}
	})
}

// A range that nobody can lead but one process is not moved back and forth for ever.
func TestARangeThatComesBackIsMovedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		a := join(t, store, "a", 4)
		time.Sleep(moment)
		b := newProcess(t, store, "b", 4)
		b.run(func(context.Context, Range, election.Term) error { return errors.New("cannot") })
		time.Sleep(2 * time.Hour)
		a.mu.Lock()
		most := slices.Max(slices.Collect(maps.Values(a.terms)))
		a.mu.Unlock()
		if most > 15 {
			t.Errorf("a range was moved %d times in two hours", most)
		}
		if got := sizes(t, a); got[0] < 3 {
			t.Errorf("the process that can lead leads %v", got)
		}
		b.stop()
		a.stop()
	})
}

// Whoever steps down has said that it does not lead the range. So the others do not leave the range to it, although it
// is assigned to it.
func TestARangeIsNotLeftToWhomHasJustGivenItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		all := []*process{join(t, store, "a", 4), join(t, store, "b", 4)}
		time.Sleep(4 * lasts)
		for k := range 4 {
			from, to := all[0], all[1]
			if _, leads := to.share()[k]; leads {
				from, to = to, from
			}
			began := time.Now()
			if _, err := from.StepDown(k, "somebody asks", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(retry)
			if since, leads := to.share()[k]; !leads || since.Sub(began) > moment {
				t.Errorf("range %d: the other one leads %t, after %v", k, leads, since.Sub(began))
			}
		}
		for _, p := range all {
			p.stop()
		}
	})
}

// With weights the shares are in proportion to them.
func TestSharesFollowWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		weighs := func(w int) func(*election.Config) { return func(cfg *election.Config) { cfg.Weight = w } }
		a, b := join(t, store, "a", 12, weighs(3)), join(t, store, "b", 12)
		time.Sleep(4 * lasts)
		if got := sizes(t, a, b); !slices.Equal(got, []int{9, 3}) {
			t.Errorf("they lead %v", got)
		}
		a.stop()
		b.stop()
	})
}

// All ranges cost the server one watch, and one renewal for each process and retry period.
func TestRequestsDoNotGrowWithTheNumberOfRanges(t *testing.T) {
	updates := map[int]int{}
	for _, n := range []int{1, 32} {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore("group")
			a, b := join(t, store, "a", n), join(t, store, "b", n)
			time.Sleep(4 * lasts) // until the shares are even
			before := a.client.Count(electiontest.Update)
			time.Sleep(10 * lasts)
			updates[n] = a.client.Count(electiontest.Update) - before
			if watches := a.client.Count(electiontest.Watch); watches != 1 {
				t.Errorf("%d watches with %d ranges", watches, n)
			}
			a.stop()
			b.stop()
		})
	}
	// a renewal more or less falls into that time
	if updates[1] == 0 || updates[32] > updates[1]+2 {
		t.Errorf("renewals with 1 and 32 ranges: %v", updates)
	}
}
