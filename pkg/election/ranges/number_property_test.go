package ranges

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election/electiontest"
)

// step is something that happens to the processes of an election.
type step struct {
	what   string
	whom   int
	wants  int
	drains time.Duration // of who joins
	after  time.Duration
}

// I17: whatever happens while numbers change, no two work for one key (workplace); and when nothing more happens, all
// ranges are led, of the number that all want.
func TestNoTwoWorkForOneKeyWhateverTheNumber(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
		return step{
			what:   rapid.SampledFrom([]string{"joins", "joins", "stops", "is cut off", "writes late", "sees nothing", "loses its watches", "is well"}).Draw(r, "what"),
			whom:   rapid.IntRange(0, 2).Draw(r, "whom"),
			wants:  rapid.SampledFrom([]int{1, 4, 4, 6, 6}).Draw(r, "wants"),
			drains: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 4 * time.Second}).Draw(r, "drains"),
			after:  rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, lasts / 2, lasts, 2 * lasts}).Draw(r, "after"),
		}
	}), 1, 30)
	rapid.Check(t, func(r *rapid.T) {
		script, last := steps.Draw(r, "steps"), rapid.SampledFrom([]int{1, 4, 6}).Draw(r, "last")
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore("group")
			now := make([]*process, 3)
			for i, s := range script {
				time.Sleep(s.after)
				happens(t, store, now, s, i)
			}
			for i, p := range now {
				if p != nil {
					p.client.HoldWatches(false)
					p.client.Always(electiontest.Fault{})
					p.stop()
				}
				now[i] = join(t, store, fmt.Sprintf("last%d", i), last)
			}
			time.Sleep(6 * lasts)
			if got, n := numbers(now...), countLed(t, now...); n != last || slices.Min(got) != last || slices.Max(got) != last {
				t.Errorf("at the end %d ranges are led of %v, want %d", n, got, last)
			}
			for _, p := range now {
				p.stop()
			}
		})
		if t.Failed() {
			r.Fatalf("after %+v", script)
		}
	})
}

// happens does a step.
func happens(t *testing.T, store *electiontest.Store, now []*process, s step, i int) {
	p := now[s.whom]
	switch {
	case s.what == "joins" && p == nil:
		p = newProcess(t, store, fmt.Sprintf("%c%d", 'a'+s.whom, i), s.wants)
		p.drains = s.drains
		p.run(p.lead)
		now[s.whom] = p
	case p == nil, s.what == "joins":
	case s.what == "stops":
		p.client.HoldWatches(false)
		p.client.Always(electiontest.Fault{})
		p.stop()
		now[s.whom] = nil
	case s.what == "is cut off":
		p.client.Always(electiontest.Fault{Hang: true})
	case s.what == "writes late":
		p.client.Always(electiontest.Fault{Delay: 2 * time.Second}, electiontest.Update, electiontest.Create)
	case s.what == "sees nothing":
		p.client.HoldWatches(true)
	case s.what == "loses its watches":
		p.client.DropWatches()
	case s.what == "is well":
		p.client.HoldWatches(false)
		p.client.Always(electiontest.Fault{})
	}
}
