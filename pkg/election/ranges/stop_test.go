package ranges

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// Each range of a process that stops is led until its turn comes. How long the others take does not matter for it, and
// how many there are does not matter for all.
func TestTheTermsOfAProcessThatStopsEndOneAfterTheOther(t *testing.T) {
	for _, test := range []struct {
		drains      time.Duration // how long the work of a term takes to stop
		wait, whole time.Duration // between two ends at least, and from the first to the last at most
	}{
		{drains: 0, wait: 0, whole: moment},
		{drains: 20 * time.Millisecond, wait: 60 * time.Millisecond, whole: 7*60*time.Millisecond + moment},
		{drains: 4 * time.Second, wait: retry / 8, whole: retry},
	} {
		t.Run(fmt.Sprintf("work that takes %v", test.drains), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 8
				store := electiontest.NewStore("group")
				p := newProcess(t, store, "a", n)
				var mu sync.Mutex
				var ends []time.Time
				p.run(func(ctx context.Context, _ Range, _ election.Term) error {
					<-ctx.Done()
					mu.Lock()
					ends = append(ends, time.Now())
					mu.Unlock()
					time.Sleep(test.drains)
					return nil
				})
				time.Sleep(moment)
				stopped := time.Now()
				p.stop()
				if len(ends) != n {
					t.Fatalf("%d terms have ended of %d", len(ends), n)
				}
				slices.SortFunc(ends, time.Time.Compare)
				for i := range ends[1:] {
					if gap := ends[i+1].Sub(ends[i]); gap < test.wait {
						t.Errorf("two terms ended within %v, want %v", gap, test.wait)
					}
				}
				if took := ends[n-1].Sub(stopped); took > test.whole {
					t.Errorf("the last term ended %v after the first, want at most %v", took, test.whole)
				}
			})
		})
	}
}

// Nobody waits until a process has stopped: what it leaves is led elsewhere, one range after the other.
func TestARangeIsLedElsewhereWhileTheProcessThatLeftItStillStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, drains = 8, 50 * time.Millisecond
		store := electiontest.NewStore("group")
		a := newProcess(t, store, "a", n)
		a.drains = drains
		a.run(a.lead)
		time.Sleep(moment)
		b := join(t, store, "b", n)
		time.Sleep(lasts / 2) // it is present, and gets nothing yet
		a.end(errDone)
		time.Sleep(drains / 2) // between the ends of two terms
		for i := range n {
			time.Sleep((1 + restsAtEnd) * drains)
			led := sizes(t, a, b)
			if led[0]+led[1] < n-1 || led[1] < i {
				t.Errorf("in turn %d they lead %v of %d", i, led, n)
			}
		}
		<-a.ended
		b.stop()
	})
}
