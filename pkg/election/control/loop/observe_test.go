package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
)

type observedKey struct{}

// witness is an observer that remembers.
type witness struct {
	begun []control.Reconcile
	ended []error
}

func (w *witness) observe(ctx context.Context, of control.Reconcile) (context.Context, func(error)) {
	w.begun = append(w.begun, of)
	return context.WithValue(ctx, observedKey{}, true), func(err error) { w.ended = append(w.ended, err) }
}

func TestAnObserverIsToldWhyAKeyIsReconciledAndHowThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen witness
		ctx, cancel := context.WithCancel(control.WithObserver(t.Context(), seen.observe))
		fails := errors.New("not yet")
		calls := 0
		l := New("mends", 1, func(ctx context.Context, k int) error {
			if ctx.Value(observedKey{}) == nil {
				t.Error("reconcile has not got the observer's context")
			}
			switch calls++; calls {
			case 1:
				return fails
			case 3:
				<-ctx.Done()
				return ctx.Err()
			default:
				return nil
			}
		})
		l.On(Source[int]{Pages: func(yield func(int, []int) bool) { yield(1, []int{7}) }})
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		time.Sleep(time.Second) // the second attempt comes after five milliseconds
		synctest.Wait()
		l.Add(8)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []control.Reconcile{
			{Controller: "mends", Key: 7, Cause: control.Swept, Attempt: 1}, {Controller: "mends", Key: 7, Cause: control.Retry, Attempt: 2},
			{Controller: "mends", Key: 8, Cause: control.Change, Attempt: 1},
		}
		for n := range want {
			if n >= len(seen.begun) || seen.begun[n] != want[n] {
				t.Fatalf("begun: %+v, want %+v", seen.begun, want)
			}
		}
		if len(seen.ended) != 3 || !errors.Is(seen.ended[0], fails) || seen.ended[1] != nil || seen.ended[2] != nil {
			t.Errorf("ended: %v: a reconcile that the end of the term cuts short has not failed", seen.ended)
		}
	})
}

func TestAnObserverIsToldOfTheEndAlsoAfterAPanic(t *testing.T) {
	var seen witness
	l := New("panics", 1, func(context.Context, int) error { panic("boom") })
	ctx := control.WithObserver(t.Context(), seen.observe)
	l.Add(1)
	p, ok := errors.AsType[*control.Panic](l.Run(ctx))
	if !ok || p.Value != "boom" || len(seen.ended) != 1 {
		t.Errorf("Run returned %v, the observer was told %v", p, seen.ended)
	}
}

func TestAReconcileThatNobodyObservesCostsNothing(t *testing.T) {
	l := New("quiet", 1, func(context.Context, int) error { return nil })
	ctx := t.Context()
	reconcile := l.observed(ctx, func(int) int { t.Error("asked for failures"); return 0 })
	if allocations := testing.AllocsPerRun(100, func() { _ = reconcile(ctx, 1) }); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}
