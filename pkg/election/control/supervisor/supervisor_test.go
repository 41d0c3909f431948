package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// story is what happened, in order.
type story struct {
	mu     sync.Mutex
	events []string
}

func (s *story) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
}

func (s *story) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// actor is a controller that does what the test says.
type actor struct {
	run   func(context.Context) error
	ready chan struct{}
}

func (a *actor) Run(ctx context.Context) error { return a.run(ctx) }

// readyActor is one that others may wait for.
type readyActor struct{ actor }

func (a *readyActor) Ready() <-chan struct{} { return a.ready }

// deps is what the constructors of these tests get.
type deps struct{ Shard string }

func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func descriptor(name string, run func(context.Context) error, needs ...string) control.Descriptor[deps] {
	return control.Descriptor[deps]{Name: name, Needs: needs, New: func(context.Context, deps) (control.Controller, error) {
		return &actor{run: run}, nil
	}}
}

// supervise runs the set in the background. logged returns the log so far.
func supervise(t *testing.T, cfg supervisor.Config, set ...control.Descriptor[deps]) (cancel func(), ended <-chan error, logged func() string) {
	t.Helper()
	logger := ktesting.NewLogger(quiet{t}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	result := make(chan error, 1)
	go func() { result <- supervisor.Run(ctx, set, deps{Shard: "root"}, cfg) }()
	return cancel, result, logger.GetSink().(ktesting.Underlier).GetBuffer().String
}

// on is an OnEvent that takes notice of one type of event only.
func on(what supervisor.EventType, do func(supervisor.Event)) func(supervisor.Event) {
	return func(e supervisor.Event) {
		if e.Type == what {
			do(e)
		}
	}
}

// quiet keeps logs out of the test's output: they are in the buffer.
type quiet struct{ *testing.T }

func (quiet) Log(...any) {}

func expectRunning(t *testing.T, ended <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-ended:
		t.Fatalf("Run returned: %v", err)
	default:
	}
}

func TestACancelledTermEndsWithoutError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel, ended, log := supervise(t, supervisor.Config{DrainTimeout: time.Second},
			descriptor("a", untilCancelled),
			descriptor("b", func(ctx context.Context) error { <-ctx.Done(); return nil }),
			descriptor("c", func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("half done: %w", ctx.Err()) }))
		expectRunning(t, ended)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if log() != "" {
			t.Errorf("logged %s", log())
		}
	})
}

func TestAnEmptySetRunsUntilCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel, ended, _ := supervise(t, supervisor.Config{})
		expectRunning(t, ended)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// stepDown is for tests in which the first failure ends the term.
var stepDown = control.Policies{Default: control.StepDown}

func TestAFailureThatEndsTheTermIsReturnedAfterAllHaveJoined(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		run     func(context.Context) error
		isPanic bool
		says    string
	}{
		"error":        {run: func(context.Context) error { return boom }, says: `controller "faulty": boom`},
		"panic":        {run: func(context.Context) error { panic(boom) }, isPanic: true, says: `controller "faulty": panic in Run: boom`},
		"early return": {run: func(context.Context) error { return nil }, says: "returned nil before its context ended"},
		"goexit":       {run: func(context.Context) error { runtime.Goexit(); return nil }, says: "runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var joined bool
				_, ended, log := supervise(t, supervisor.Config{Policies: stepDown},
					descriptor("slow", func(ctx context.Context) error {
						<-ctx.Done()
						var ce *supervisor.ControllerError
						if !errors.As(context.Cause(ctx), &ce) || ce.Controller != "faulty" {
							t.Errorf("the others' context ended because of %v", context.Cause(ctx))
						}
						time.Sleep(time.Hour)
						joined = true
						return errors.New("a second failure")
					}),
					descriptor("faulty", func(ctx context.Context) error {
						time.Sleep(time.Second)
						return c.run(ctx)
					}))
				time.Sleep(time.Minute)
				expectRunning(t, ended)
				err := <-ended
				if !joined {
					t.Error("Run returned before all controllers had")
				}
				var ce *supervisor.ControllerError
				if !errors.As(err, &ce) || ce.Controller != "faulty" || !strings.Contains(err.Error(), c.says) {
					t.Errorf("Run returned %v", err)
				}
				if _, ok := errors.AsType[*control.Panic](err); ok != c.isPanic {
					t.Errorf("is a panic: %v", ok)
				}
				if n := strings.Count(log(), `controller="faulty"`); n != 1 {
					t.Errorf("the failure was logged %d times:\n%s", n, log())
				}
				if c.isPanic && !strings.Contains(log(), "supervisor_test.go") {
					t.Errorf("the panic was logged without its stack:\n%s", log())
				}
			})
		})
	}
}

func TestAControllerThatCannotBeConstructedIsTriedAgain(t *testing.T) {
	boom := errors.New("boom")
	for name, construct := range map[string]func() (control.Controller, error){
		"error":   func() (control.Controller, error) { return nil, boom },
		"panic":   func() (control.Controller, error) { panic(boom) },
		"nothing": func() (control.Controller, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ended, log := supervise(t, supervisor.Config{},
					descriptor("sound", untilCancelled),
					control.Descriptor[deps]{Name: "faulty", New: func(context.Context, deps) (control.Controller, error) { return construct() }})
				var ce *supervisor.ControllerError
				if err := <-ended; !errors.As(err, &ce) || ce.Controller != "faulty" || (name != "nothing" && !errors.Is(err, boom)) {
					t.Errorf("Run returned %v", err)
				}
				if n := strings.Count(log(), `controller="faulty"`); n != supervisor.DefaultRestartLimit+1 || strings.Contains(log(), "sound") {
					t.Errorf("%d failures logged, want one more than the restart limit:\n%s", n, log())
				}
			})
		})
	}
}

func TestAControllerStartsWhenWhatItNeedsIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		base := &readyActor{actor{ready: make(chan struct{})}}
		base.run = func(ctx context.Context) error {
			s.add("base")
			time.Sleep(time.Second)
			s.add("base ready")
			close(base.ready)
			return untilCancelled(ctx)
		}
		tell := func(name string) func(context.Context) error {
			return func(ctx context.Context) error { s.add("%s", name); return untilCancelled(ctx) }
		}
		cancel, ended, _ := supervise(t, supervisor.Config{},
			descriptor("second", tell("second"), "base", "free"),
			descriptor("free", tell("free")),
			control.Descriptor[deps]{Name: "base", New: func(context.Context, deps) (control.Controller, error) { return base, nil }})
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		events := s.all()
		if len(events) != 4 || !slices.Contains(events[:2], "free") || !slices.Equal(events[2:], []string{"base ready", "second"}) {
			t.Errorf("got %v", events)
		}
	})
}

func TestNobodyWaitsForAReadinessThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &readyActor{actor{ready: make(chan struct{}), run: func(context.Context) error { return errors.New("boom") }}}
		_, ended, _ := supervise(t, supervisor.Config{Policies: stepDown},
			descriptor("second", func(context.Context) error { t.Error("was started"); return nil }, "base"),
			control.Descriptor[deps]{Name: "base", New: func(context.Context, deps) (control.Controller, error) { return base, nil }})
		if err := <-ended; err == nil || !strings.Contains(err.Error(), `"base"`) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestANeedOutsideTheSetIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ended, _ := supervise(t, supervisor.Config{}, descriptor("a", untilCancelled, "nobody"))
		if err := <-ended; err == nil || !strings.Contains(err.Error(), `needs "nobody"`) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func hangHere(release <-chan struct{}) { <-release }

func TestALateControllerIsNamedWithItsStacksAndJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var late story
		cancel, ended, log := supervise(t, supervisor.Config{
			DrainTimeout: 5 * time.Second,
			OnEvent: on(supervisor.ControllerLate, func(e supervisor.Event) {
				late.add("[%s]", e.Controller)
			}),
		},
			descriptor("prompt", untilCancelled),
			descriptor("late", func(context.Context) error {
				var workers sync.WaitGroup
				workers.Go(func() { hangHere(release) })
				workers.Wait()
				return nil
			}))
		expectRunning(t, ended)
		cancel()
		time.Sleep(4 * time.Second)
		if log() != "" {
			t.Errorf("reported before the drain timeout: %s", log())
		}
		time.Sleep(2 * time.Second)
		if got := late.all(); !slices.Equal(got, []string{"[late]"}) {
			t.Errorf("OnEvent was told %v", got)
		}
		if n := strings.Count(log(), `controller="late"`); n != 1 || strings.Contains(log(), "prompt") {
			t.Errorf("reported %d times:\n%s", n, log())
		}
		// the worker's stack, and where it was started
		for _, want := range []string{"hangHere", "supervisor_test.go"} {
			if !strings.Contains(log(), want) {
				t.Errorf("no %q in the report:\n%s", want, log())
			}
		}
		time.Sleep(time.Hour)
		if n := strings.Count(log(), `controller="late"`); n < 2 || n > 7 {
			t.Errorf("reported %d times in an hour", n)
		}
		expectRunning(t, ended)
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !strings.Contains(log(), "Late controllers have returned") || len(late.all()) != 1 {
			t.Errorf("OnEvent was told %v, log:\n%s", late.all(), log())
		}
	})
}

func TestALateConstructorIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cancel, ended, log := supervise(t, supervisor.Config{DrainTimeout: time.Second},
			control.Descriptor[deps]{Name: "late", New: func(context.Context, deps) (control.Controller, error) {
				hangHere(release)
				return &actor{run: func(context.Context) error { t.Error("was started in a term that is over"); return nil }}, nil
			}})
		expectRunning(t, ended)
		cancel()
		time.Sleep(2 * time.Second)
		if !strings.Contains(log(), `controller="late"`) || !strings.Contains(log(), "hangHere") {
			t.Errorf("logged %s", log())
		}
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTheContextNamesTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hello := func(ctx context.Context) { klog.FromContext(ctx).Info("hello") }
		cancel, ended, log := supervise(t, supervisor.Config{}, control.Descriptor[deps]{
			Name: "a",
			New: func(ctx context.Context, deps deps) (control.Controller, error) {
				if deps.Shard != "root" {
					t.Errorf("deps %v", deps)
				}
				hello(ctx)
				return &actor{run: func(ctx context.Context) error { hello(ctx); return untilCancelled(ctx) }}, nil
			}})
		expectRunning(t, ended)
		cancel()
		<-ended
		if n := strings.Count(log(), `hello controller="a"`); n != 2 {
			t.Errorf("%d of 2 lines name the controller:\n%s", n, log())
		}
	})
}

func TestAFailureIsToldBeforeTheOthersHaveJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, hangs, returns := errors.New("broken"), make(chan struct{}), make(chan struct{})
		told := make(chan error, 2)
		_, ended, _ := supervise(t, supervisor.Config{Policies: stepDown, OnEvent: on(supervisor.TermFailed, func(e supervisor.Event) { told <- e.Err })},
			descriptor("hangs", func(context.Context) error { close(hangs); <-returns; return nil }),
			// else the other may never start
			descriptor("breaks", func(context.Context) error { <-hangs; return broken }),
			descriptor("breaks-later", func(ctx context.Context) error { <-ctx.Done(); panic("too") }))
		expectRunning(t, ended)
		failure, ok := errors.AsType[*supervisor.ControllerError](<-told)
		if !ok || failure.Controller != "breaks" || !errors.Is(failure, broken) {
			t.Errorf("told %v", failure)
		}
		close(returns)
		if err := <-ended; !errors.Is(err, broken) {
			t.Errorf("Run returned %v", err)
		}
		if len(told) != 0 {
			t.Errorf("told again: %v", <-told)
		}
	})
}
