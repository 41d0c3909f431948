package ranges

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// numbers returns how many ranges each process says there are.
func numbers(processes ...*process) (all []int) {
	for _, p := range processes {
		all = append(all, p.Status().Number)
	}
	return all
}

// countLed returns how many ranges are led.
func countLed(t *testing.T, processes ...*process) (n int) {
	t.Helper()
	for _, size := range sizes(t, processes...) {
		n += size
	}
	return n
}

// I17: one leader becomes many by a roll, and many become one: the number changes with the last process, and no two
// work for one key (workplace).
func TestTheNumberOfRangesIsRolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		now := 1
		processes := []*process{join(t, store, "a", 1), join(t, store, "b", 1), join(t, store, "c", 1)}
		time.Sleep(moment)
		if n := countLed(t, processes...); n != 1 {
			t.Fatalf("%d ranges are led, want 1", n)
		}
		for round, next := range []int{8, 12, 5, 1} {
			for i, p := range processes {
				p.stop()
				if i == len(processes)-1 {
					now = next
				}
				time.Sleep(lasts / 2) // nothing is handed over then
				if got := countLed(t, processes...); got != now {
					t.Errorf("%d of %d ranges are led after %d of %d have stopped", got, now, i+1, len(processes))
				}
				processes[i] = join(t, store, string(rune('a'+i))+string(rune('0'+round)), next)
				time.Sleep(4*lasts + lasts/3)
				if got := numbers(processes...); slices.Min(got) != now || slices.Max(got) != now || countLed(t, processes...) != now {
					t.Errorf("%d ranges are led, and they say that there are %v, want %d", countLed(t, processes...), got, now)
				}
			}
			if got := sizes(t, processes...); next > 1 && slices.Max(got)-slices.Min(got) > 1 {
				t.Errorf("of %d ranges they lead %v", next, got)
			}
		}
		for _, p := range processes {
			p.stop()
		}
		if holder := store.Holder(); holder != "" {
			t.Errorf("at the end the Lease of the election is held by %q", holder)
		}
	})
}

// A change takes as long as the terms take to end, and nobody has to wait for anything else.
func TestNothingIsWaitedForInAChangeButTheEndsOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drains = time.Second
		store := electiontest.NewStore("group")
		a, b := join(t, store, "a", 4), join(t, store, "b", 4)
		time.Sleep(moment)
		old := newProcess(t, store, "old", 6)
		old.drains = drains
		old.run(old.lead)
		time.Sleep(3 * lasts)
		if got := numbers(a, b, old); !slices.Equal(got, []int{4, 4, 4}) {
			t.Fatalf("they say that there are %v ranges", got)
		}
		a.stop()
		b.stop()
		time.Sleep(drains + moment)
		if got, n := numbers(old), countLed(t, old); got[0] != 6 || n != 6 {
			t.Errorf("%d ranges are led of %v", n, got)
		}
		old.stop()
	})
}

// No work of the new number begins before all work of the old one has stopped, wherever that is (workplace).
func TestWorkOfAnotherNumberWaitsForThatOfTheOldOne(t *testing.T) {
	for _, test := range []struct{ from, to int }{{4, 6}, {6, 4}, {4, 1}, {1, 4}} {
		t.Run(fmt.Sprintf("from %d to %d", test.from, test.to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore("group")
				last := join(t, store, "z", test.from)
				time.Sleep(moment)
				var next []*process
				for _, name := range []string{"a", "b", "c"} {
					p := newProcess(t, store, name, test.to)
					if name != "a" { // which changes the number
						p.drains = 3 * time.Second
					}
					p.run(p.lead)
					next = append(next, p)
				}
				time.Sleep(4 * lasts)
				last.stop()
				time.Sleep(lasts / 2)
				if n := countLed(t, next...); n != test.to {
					t.Errorf("%d ranges are led", n)
				}
				for _, p := range next {
					p.stop()
				}
			})
		})
	}
}

// Whoever changes the number may be cut off at any time. Others do it then, or give it up.
func TestAChangerThatIsCutOffHoldsUpTheOthersForALeaseOnly(t *testing.T) {
	for _, test := range []struct {
		name string
		at   int // how many writes of it succeed
	}{{"before it says so", 1}, {"while it gathers", 4}, {"before it writes the number", 6}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore("group")
				last := join(t, store, "z", 4)
				time.Sleep(moment)
				a, b := join(t, store, "a", 8), join(t, store, "b", 8)
				time.Sleep(lasts / 2) // nobody has given anything away yet
				a.client.Next(electiontest.Update, slices.Repeat([]electiontest.Fault{{}}, test.at)...)
				a.client.Always(electiontest.Fault{Hang: true}, electiontest.Update, electiontest.Create)
				last.stop()
				time.Sleep(3 * lasts)
				if got, n := numbers(b), countLed(t, a, b); got[0] != 8 || n != 8 {
					t.Errorf("%d ranges are led of %v", n, got)
				}
				a.client.Always(electiontest.Fault{})
				time.Sleep(4 * lasts)
				if got, n := numbers(a, b), countLed(t, a, b); got[0] != 8 || n != 8 {
					t.Errorf("%d ranges are led of %v when it is back", n, got)
				}
				a.stop()
				b.stop()
			})
		})
	}
}

// A change that does not go on, because its changer has died or somebody has come who wants another number, is given
// up, and costs no term.
func TestAChangeThatDoesNotGoOnIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		a, b := join(t, store, "a", 4), join(t, store, "b", 4)
		time.Sleep(4*lasts + lasts/2)
		before := []map[int]time.Time{a.share(), b.share()}
		client := store.Client()
		for _, next := range []int{1, 8, 8} {
			if _, err := client.Update(t.Context(), number{Ranges: 4, Next: next, Changer: "dead"}.writeTo(store.Lease()), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(moment)
			if got, err := numberOn(store.Lease()); err != nil || got != (number{Ranges: 4}) {
				t.Errorf("the number is %+v, %v", got, err)
			}
		}
		if got := []map[int]time.Time{a.share(), b.share()}; !maps.Equal(got[0], before[0]) || !maps.Equal(got[1], before[1]) {
			t.Errorf("they lead %v, before %v", got, before)
		}
		a.stop()
		b.stop()
	})
}

// What people do to the Lease of the election ends no work, unless they say with it that there is one range.
func TestANumberThatSomebodySpoilsStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		a, b := join(t, store, "a", 6), join(t, store, "b", 6)
		time.Sleep(3 * lasts)
		before := a.share()
		store.Edit(func(l *coordinationv1.Lease) { l.Annotations[numberAnnotation] = "six" })
		time.Sleep(lasts)
		b.end(errDone)
		<-b.ended
		time.Sleep(lasts)
		if got := a.share(); len(got) != len(before) {
			t.Errorf("it leads %d, before %d: what is free must not be acquired while nobody knows how many ranges there are", len(got), len(before))
		}
		store.Edit(func(l *coordinationv1.Lease) { l.Annotations[numberAnnotation] = `{"ranges":6}` })
		time.Sleep(lasts)
		if n := countLed(t, a); n != 6 {
			t.Errorf("%d of 6 are led when it is right again", n)
		}
		store.Delete()
		time.Sleep(lasts)
		if n, got := countLed(t, a), numbers(a); n != 6 || got[0] != 6 {
			t.Errorf("%d of %v are led when it was deleted", n, got)
		}
		a.stop()
	})
}

// Whoever wants another number than there is leads its share, and says so.
func TestWhoWantsAnotherNumberLeadsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		a := join(t, store, "a", 6)
		time.Sleep(moment)
		b := join(t, store, "b", 8)
		time.Sleep(4 * lasts)
		if got := sizes(t, a, b); !slices.Equal(got, []int{3, 3}) {
			t.Errorf("they lead %v", got)
		}
		s := b.Status()
		if s.Number != 6 || s.Wanted != 8 || s.Waits != "" || len(s.Ranges) != 6 || s.Processes[0].Wants != 6 || s.Processes[1].Wants != 8 {
			t.Errorf("it says %d, %d, %q, %+v", s.Number, s.Wanted, s.Waits, s.Processes)
		}
		b.Hold("it waits for the test")
		if got := b.Status().Waits; got != "it waits for the test" {
			t.Errorf("it waits for %q", got)
		}
		if _, err := b.StepDown(6, "there is none", ""); !errors.Is(err, election.ErrNotLeading) {
			t.Errorf("a range that there is not steps down: %v", err)
		}
		a.stop()
		b.stop()
	})
}

// A process that has not seen the change of the number acquires nothing of the old one, however late its watch is.
func TestNothingOfAnotherNumberIsAcquired(t *testing.T) {
	const name = "group-1"
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		p := newProcess(t, store, "a", 4)
		d, err := p.divide(stage{do: work, of: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		watched, client := shared(t, store)
		p.leases = watched
		write := func(n number) {
			t.Helper()
			if store.Lease() == nil {
				store.Take("somebody", time.Hour)
			}
			if _, err := client.Update(t.Context(), n.writeTo(store.Lease()), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		acquire := func() error {
			next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if held := store.Of(name).Lease(); held != nil {
				next = held.DeepCopy()
			}
			next.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), LeaseTransitions: ptr.To(ptr.Deref(next.Spec.LeaseTransitions, 0) + 1)}
			ctx, cancel := context.WithTimeout(t.Context(), retry)
			defer cancel()
			return d.mayWrite(ctx, next)
		}
		write(number{Ranges: 4})
		store.Of(name).Take("before", time.Hour)
		store.Of(name).Free()
		synctest.Wait()
		if err := acquire(); err != nil {
			t.Errorf("under the number that it is: %v", err)
		}
		for _, other := range []number{{Ranges: 4, Next: 8, Changer: "b"}, {Ranges: 8}, {Ranges: 1}} {
			write(other)
			synctest.Wait()
			if err := acquire(); !apierrors.IsConflict(err) {
				t.Errorf("under %+v: %v", other, err)
			}
		}
		write(number{Ranges: 4})
		synctest.Wait()
		client.HoldWatches(true)
		write(number{Ranges: 8})
		store.Of(name).Take("who changed it", time.Hour)
		store.Of(name).Free() // a read would show that, and the watch does not
		if err := acquire(); err == nil {
			t.Error("what the watch does not show yet is acquired")
		}
		client.HoldWatches(false)
		synctest.Wait()
		if err := acquire(); !apierrors.IsConflict(err) {
			t.Errorf("when the watch shows it: %v", err)
		}
	})
}
