package loop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
)

// What waits for somebody else's machine is cut short, which is a failure as any other: it is tried again, its worker
// is free meanwhile, and the loop has returned something.
func TestAReconcileThatWaitsForATenantIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		var failures []error
		began := time.Now()
		l := loop.New("test", 1, func(ctx context.Context, key string) error {
			if tenant(key) != "hangs" {
				return nil
			}
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a reconcile has no deadline")
			}
			tries = append(tries, time.Since(began))
			<-ctx.Done()
			return fmt.Errorf("ask it: %w", ctx.Err())
		})
		l.By(tenant)
		l.Within(20 * time.Second)
		ctx := control.WithObserver(t.Context(), func(ctx context.Context, r control.Reconcile) (context.Context, func(error)) {
			return ctx, func(err error) { failures = append(failures, err) }
		})
		stop := start(ctx, l)
		synctest.Wait()
		l.Add("hangs/1")
		time.Sleep(45 * time.Second)
		h := l.Report()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(tries) != 3 || tries[1] < 20*time.Second || tries[1] > 21*time.Second {
			t.Errorf("tried after %v", tries)
		}
		if h.Returned != 2 || h.Pending != 1 {
			t.Errorf("reported as %+v", h)
		}
		// The third one was cut short by the end of the loop, which is no failure.
		if len(failures) != 3 || !errors.Is(failures[0], context.DeadlineExceeded) || failures[2] != nil {
			t.Errorf("failed with %v", failures)
		}
	})
}

// What has more to do than fits into a turn comes further in each of them: the pauses between its turns do not grow.
func TestWhatTakesManyTurnsRestsForAMomentBetweenThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns, turn = 40, 20 * time.Second
		var began []time.Time
		l := loop.New("test", 1, func(ctx context.Context, _ string) error {
			if began = append(began, time.Now()); len(began) == turns {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("delete what is left: %w", ctx.Err())
		})
		l.Within(turn)
		stop := start(t.Context(), l)
		synctest.Wait()
		l.Add("a/1")
		time.Sleep(2 * turns * turn)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(began) != turns {
			t.Fatalf("%d turns, want %d", len(began), turns)
		}
		for n := 1; n < turns; n++ {
			if rest := began[n].Sub(began[n-1]) - turn; rest < 0 || rest > turn/20 {
				t.Errorf("before turn %d it rests for %v", n, rest)
			}
		}
	})
}

// A report says to whom all work belongs, so that a supervisor can tell a tenant that hangs from a controller that
// does.
func TestAReportNamesTheOnlyGroupThatHasWork(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		keys    []string
		want    string
	}{
		"nothing":                        {4, nil, ""},
		"one key":                        {4, []string{"a/1"}, "a"},
		"more than it has workers for":   {4, []string{"a/1", "a/2", "a/3", "a/4", "a/5"}, "a"},
		"two groups":                     {4, []string{"a/1", "a/2", "b/1"}, ""},
		"two groups, and one worker":     {1, []string{"a/1", "b/1"}, ""},
		"two groups that have each many": {4, []string{"a/1", "a/2", "a/3", "b/1", "b/2", "b/3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := loop.New("test", c.workers, func(ctx context.Context, _ string) error {
					<-ctx.Done()
					return nil
				})
				l.By(tenant)
				stop := start(t.Context(), l)
				synctest.Wait()
				for _, key := range c.keys {
					l.Add(key)
					synctest.Wait()
				}
				if h := l.Report(); h.Only != c.want || h.Pending != len(c.keys) {
					t.Errorf("reported as %+v, want %q", h, c.want)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Loops that do not tell keys apart name nobody.
func TestALoopWithoutGroupsNamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("test", 2, func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
		stop := start(t.Context(), l)
		l.Add("a/1")
		synctest.Wait()
		if h := l.Report(); h.Only != "" || h.Pending != 1 {
			t.Errorf("reported as %+v", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
