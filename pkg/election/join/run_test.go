package join

import (
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

func TestWhoIsLateIsNamedWithItsStack(t *testing.T) {
	for name, c := range map[string]struct {
		start func(ctx context.Context, gate chan struct{}) // the work; what it starts ends with the gate
		want  string
	}{
		"goroutines that the work has started": {func(_ context.Context, gate chan struct{}) {
			for range 3 {
				go straggler(gate)
			}
			go func() {}()
		}, ownPackage + ".straggler (3)"},
		"goroutines with labels": {func(ctx context.Context, gate chan struct{}) {
			pprof.Do(ctx, pprof.Labels("who", "me", "z", "z"), func(context.Context) { go straggler(gate) })
		}, ownPackage + `.straggler {"who":"me", "z":"z"}`},
		"the work itself":  {func(_ context.Context, gate chan struct{}) { straggler(gate) }, ownPackage + ".TestWhoIsLateIsNamedWithItsStack.func"},
		"an undo function": {func(_ context.Context, gate chan struct{}) { OnEnd(func() { straggler(gate) }) }, ownPackage + ".TestWhoIsLateIsNamedWithItsStack.func"},
	} {
		t.Run(name, func(t *testing.T) {
			gate, reports := make(chan struct{}), make(chan *Late)
			over := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			o := Options{Patience: 10 * time.Millisecond, OnLate: func(l *Late) {
				select {
				case reports <- l:
				case <-over:
				}
			}}
			done := ends(func() { _ = Run(ctx, o, func(ctx context.Context) error { c.start(ctx, gate); return nil }) })
			cancel()
			named, late := 0, new(Late)
			for giveUp := time.After(soon); named < 2; { // it is reported again
				select {
				case late = <-reports:
				case <-giveUp:
					t.Fatalf("last was %v, want …%s\n%s", late, c.want, late.Stacks())
				}
				if late.For < 10*time.Millisecond {
					t.Errorf("%v", late)
				}
				// A report is of one moment: the work may be on its way to where it is late, and what
				// it has started may not have ended yet.
				if strings.Contains(late.Error(), ": "+c.want) && strings.Contains(late.Stacks(), "straggler") {
					named++
				} else {
					named = 0
				}
			}
			close(over)
			close(gate)
			mustEnd(t, "the end", done)
		})
	}
}

func straggler(gate chan struct{}) { <-gate }

func TestRunReturnsWhatItsWorkReturnsWhenAllHasEnded(t *testing.T) {
	want, ended := errors.New("mine"), atomic.Bool{}
	err := Run(t.Context(), quiet, func(ctx context.Context) error {
		go func() {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, errEnded) {
				t.Errorf("cause: %v", cause)
			}
			ended.Store(true)
		}()
		return want
	})
	if !errors.Is(err, want) || !ended.Load() {
		t.Errorf("%v, ended: %t", err, ended.Load())
	}
}

func TestTheContextOfAScopeEndsWithTheOneItCameFrom(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	err := Run(ctx, quiet, Starting(func(inner context.Context) error {
		if From(inner) == nil || From(ctx) != nil {
			t.Error("From does not return the scope of a context")
		}
		go func() {
			<-inner.Done()
			if !errors.Is(context.Cause(inner), why) {
				t.Errorf("cause: %v", context.Cause(inner))
			}
		}()
		cancel(why)
		return nil
	}))
	if err != nil {
		t.Error(err)
	}
}

func TestPanicsAreContainedUntilAllHasEnded(t *testing.T) {
	for name, work := range map[string]func(context.Context) error{
		"of the work":       func(context.Context) error { panic("boom") },
		"of undo functions": func(context.Context) error { OnEnd(func() { panic("boom") }); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			undone := false
			defer func() {
				if p, ok := recover().(*Panic); !ok || p.Value != "boom" || !strings.Contains(p.Error(), "run_test.go") || !undone {
					t.Errorf("recovered %v, undone: %t", p, undone)
				}
			}()
			_ = Controller(func(ctx context.Context) error {
				OnEnd(func() { undone = true })
				return work(ctx)
			}).Run(t.Context())
		})
	}
}

func TestWorkThatEndsItsGoroutineIsAPanic(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, errGoexit) {
			t.Errorf("recovered %v", err)
		}
	}()
	_ = Run(t.Context(), quiet, func(context.Context) error { runtime.Goexit(); return nil })
}

// Work that has not begun yet is on no goroutine that a look could see.
func TestAScopeWaitsForWorkThatNoLookHasSeenYet(t *testing.T) {
	s := scope(t)
	doing := func(change int) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.doing += change
		return s.doing
	}
	s.Do(func(context.Context) {
		if n := doing(0); n != 1 {
			t.Errorf("%d works go on, want 1", n)
		}
	})
	if n := doing(1); n != 1 {
		t.Errorf("%d works go on, want the new one", n)
	}
	done := ends(s.End)
	staysOpen(t, "End has returned before the work has begun", done)
	doing(-1)
	mustEnd(t, "the end", done)
}

func TestAfterTheEnd(t *testing.T) {
	s := scope(t)
	s.End()
	s.End()
	undone := false
	s.OnEnd(func() { undone = true })
	if !undone {
		t.Error("what is registered after the end is not undone")
	}
	defer func() {
		if recover() == nil {
			t.Error("Do works after the end")
		}
	}()
	s.Do(func(context.Context) {})
}

// elect runs an elector without others.
func elect(t *testing.T, lead election.LeadFunc) (stop func()) {
	t.Helper()
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client = "default", "join", electiontest.NewStore("join").Client()
	cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, cfg.DrainTimeout = 4*time.Second, 2*time.Second, 100*time.Millisecond, 50*time.Millisecond
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := ends(func() { _ = elector.Run(ctx, lead) })
	return func() { cancel(); mustEnd(t, "the election", done) }
}

func TestATermEndsWhenItsWorkFailsAndTheNextWaitsForWhatIsLeft(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New("failed") },
		"a panic":  func() error { panic("failed") },
	} {
		t.Run(name, func(t *testing.T) {
			gate, ended, terms := make(chan struct{}), make(chan struct{}), atomic.Int32{}
			stop := elect(t, Lead(quiet, func(ctx context.Context, _ election.Term) error {
				if terms.Add(1) > 1 {
					<-ctx.Done()
					return nil
				}
				go func() {
					<-ctx.Done()
					close(ended)
					<-gate
				}()
				return fail()
			}))
			mustEnd(t, "the context of the failed term", ended)
			staysOpen(t, "", make(chan struct{})) // the end of the scope looks, and waits
			if terms.Load() > 1 {
				t.Error("the next term has begun before all of the failed one had ended")
			}
			close(gate)
			eventually(t, "another term", func() bool { return terms.Load() > 1 })
			stop()
		})
	}
}

// What a term's function returns says how it has panicked, in its work or in what it undoes: nobody else says the
// latter.
func TestAPanicOfATermIsReturned(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		lead  func(ctx context.Context) error
		wants []error
	}{
		"of the work":                       {func(context.Context) error { panic("boom") }, nil},
		"of what it undoes":                 {func(context.Context) error { OnEnd(func() { panic("boom") }); return nil }, nil},
		"of what it undoes, after it fails": {func(context.Context) error { OnEnd(func() { panic("boom") }); return broken }, []error{broken}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Lead(quiet, func(ctx context.Context, _ election.Term) error { return c.lead(ctx) })(t.Context(), election.Term{})
			if p, ok := errors.AsType[*Panic](err); !ok || p.Value != "boom" {
				t.Errorf("it returns %v", err)
			}
			for _, want := range c.wants {
				if !errors.Is(err, want) {
					t.Errorf("it returns %v, want %v, too", err, want)
				}
			}
		})
	}
}
