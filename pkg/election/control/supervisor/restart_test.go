package supervisor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// fresh describes a controller that is what the n-th construction (from 1) returns.
func fresh(name string, construct func(n int) control.Controller, needs ...string) control.Descriptor[deps] {
	n := 0
	return control.Descriptor[deps]{Name: name, Needs: needs, New: func(context.Context, deps) (control.Controller, error) {
		n++
		return construct(n), nil
	}}
}

func TestARestartIsAFreshConstructionAfterTheOldOneIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		cancel, ended, _ := supervise(t, supervisor.Config{}, fresh("a", func(n int) control.Controller {
			s.add("new %d", n)
			return &actor{run: func(ctx context.Context) error {
				s.add("run %d", n)
				defer s.add("joined %d", n)
				if n < 3 {
					return errors.New("boom")
				}
				return untilCancelled(ctx)
			}}
		}))
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{"new 1", "run 1", "joined 1", "new 2", "run 2", "joined 2", "new 3", "run 3", "joined 3"}
		if got := s.all(); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}

func TestThePauseBeforeARestartGrowsAndBeginsAnewAfterALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 30 * time.Second
		var ended []time.Time
		var pauses []time.Duration
		cancel, done, _ := supervise(t, supervisor.Config{RestartLimit: 100, RestartWindow: long}, fresh("a", func(n int) control.Controller {
			if n > 1 {
				pauses = append(pauses, time.Since(ended[n-2]))
			}
			return &actor{run: func(ctx context.Context) error {
				if n == 15 {
					time.Sleep(long)
				}
				ended = append(ended, time.Now())
				return errors.New("boom")
			}}
		}))
		time.Sleep(20 * time.Minute)
		cancel()
		<-done
		want := 200 * time.Millisecond
		for i, pause := range pauses {
			if i == 14 { // after the long run
				want = 200 * time.Millisecond
			}
			if pause < want || pause > want+want/10 {
				t.Errorf("pause %d is %v, want %v and up to a tenth more", i+1, pause, want)
			}
			want = min(2*want, time.Minute)
		}
		if len(pauses) < 16 {
			t.Errorf("only %d restarts", len(pauses))
		}
	})
}

func TestFailuresThatAreFarApartAreNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lives := 0
		cancel, ended, _ := supervise(t, supervisor.Config{}, fresh("a", func(int) control.Controller {
			lives++
			return &actor{run: func(context.Context) error { time.Sleep(70 * time.Second); return errors.New("boom") }}
		}))
		time.Sleep(time.Hour)
		expectRunning(t, ended)
		cancel()
		<-ended
		if lives < 25 {
			t.Errorf("%d lives in an hour, want one every 70 s and its pause of a minute", lives)
		}
	})
}

func TestFailuresWhileTheStoreIsUnreachableAreNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		outage := func() bool { return time.Since(began) > 4*time.Second && time.Since(began) < time.Hour }
		_, ended, _ := supervise(t, supervisor.Config{StoreReachable: func() bool { return !outage() }},
			descriptor("a", func(context.Context) error { return errors.New("cannot reach the store") }))
		time.Sleep(time.Hour)
		expectRunning(t, ended)
		time.Sleep(10 * time.Minute)
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the term ended without an error")
			}
		default:
			t.Fatal("the failures after the outage do not count either")
		}
	})
}

func TestTheOthersDoNotNoticeARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := func(n int) control.Controller {
			r := &readyActor{actor{ready: make(chan struct{})}}
			r.run = func(ctx context.Context) error {
				close(r.ready)
				if n == 1 {
					time.Sleep(time.Second)
					return errors.New("boom")
				}
				return untilCancelled(ctx)
			}
			return r
		}
		lives := 0
		cancel, ended, _ := supervise(t, supervisor.Config{}, fresh("base", base),
			fresh("other", func(int) control.Controller { lives++; return &actor{run: untilCancelled} }, "base"))
		time.Sleep(time.Minute)
		expectRunning(t, ended)
		cancel()
		<-ended
		if lives != 1 {
			t.Errorf("the other was constructed %d times", lives)
		}
	})
}

func TestWhatNeedsADisabledControllerIsLeftOutToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int32
		cancel, ended, log := supervise(t, supervisor.Config{},
			descriptor("third", func(context.Context) error { t.Error("was started"); return nil }, "second"),
			descriptor("second", func(context.Context) error { t.Error("was started"); return nil }, "off"),
			descriptor("free", func(ctx context.Context) error { started.Add(1); return untilCancelled(ctx) }),
			control.Descriptor[deps]{Name: "off", New: func(context.Context, deps) (control.Controller, error) {
				return nil, control.ErrDisabled
			}})
		time.Sleep(time.Hour)
		expectRunning(t, ended)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if started.Load() != 1 {
			t.Errorf("the free one was started %d times", started.Load())
		}
		for _, name := range []string{"off", "second", "third"} {
			if n := strings.Count(log(), `controller="`+name+`"`); n != 1 {
				t.Errorf("%s was mentioned %d times:\n%s", name, n, log())
			}
		}
	})
}

func TestAFailedTermIsUndoneInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		undone := func(name string, takes time.Duration) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				s.add("%s asked", name)
				time.Sleep(takes)
				s.add("%s joined", name)
				return nil
			}
		}
		_, ended, _ := supervise(t, supervisor.Config{DrainTimeout: 5 * time.Second},
			descriptor("base", undone("base", 0)),
			descriptor("middle", undone("middle", 10*time.Millisecond), "base"),
			descriptor("top", undone("top", 10*time.Millisecond), "middle"),
			descriptor("faulty", func(context.Context) error {
				time.Sleep(time.Second)
				return control.ErrStepDown
			}, "middle"))
		if err := <-ended; !errors.Is(err, control.ErrStepDown) {
			t.Errorf("Run returned %v", err)
		}
		want := []string{"top asked", "top joined", "middle asked", "middle joined", "base asked", "base joined"}
		if got := s.all(); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}

func TestAnEndedContextStopsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		slow := func(ctx context.Context) error {
			<-ctx.Done()
			asked = append(asked, time.Now())
			time.Sleep(time.Second)
			return nil
		}
		cancel, ended, _ := supervise(t, supervisor.Config{DrainTimeout: 5 * time.Second}, descriptor("base", slow))
		time.Sleep(time.Second)
		at := time.Now()
		cancel()
		<-ended
		if len(asked) != 1 || !asked[0].Equal(at) || time.Since(at) != time.Second {
			t.Errorf("asked at %v, joined after %v", asked, time.Since(at))
		}
	})
}

// One that hangs does not hold up the undoing for more than a second, and others are asked then.
func TestUndoingDoesNotWaitForOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		asked := make(chan time.Time, 1)
		told := make(chan time.Time, 1)
		_, ended, _ := supervise(t, supervisor.Config{DrainTimeout: 5 * time.Second, OnEvent: on(supervisor.TermFailed, func(supervisor.Event) { told <- time.Now() })},
			descriptor("base", func(ctx context.Context) error { <-ctx.Done(); asked <- time.Now(); return nil }),
			descriptor("hangs", func(context.Context) error { <-release; return nil }, "base"),
			descriptor("faulty", func(context.Context) error { time.Sleep(time.Second); return control.ErrStepDown }, "base"))
		began := time.Now().Add(time.Second)
		if took := (<-asked).Sub(began); took != time.Second {
			t.Errorf("the base was asked after %v", took)
		}
		if took := (<-told).Sub(began); took != time.Second {
			t.Errorf("the failure was told after %v", took)
		}
		expectRunning(t, ended)
		close(release)
		<-ended
	})
}

func TestALaterExitCountsMoreThanAStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ended, _ := supervise(t, supervisor.Config{},
			descriptor("steps", func(context.Context) error { time.Sleep(time.Second); return control.ErrStepDown }),
			descriptor("exits", func(ctx context.Context) error { <-ctx.Done(); return control.ErrExit }))
		var ce *supervisor.ControllerError
		if err := <-ended; !errors.Is(err, control.ErrExit) || !errors.As(err, &ce) || ce.Controller != "exits" {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestAFailureNamesTheToleratedControllersToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ended, _ := supervise(t, supervisor.Config{Tolerated: []string{"poisoned"}},
			descriptor("poisoned", func(context.Context) error { return errors.New("boom") }),
			descriptor("another", func(context.Context) error { time.Sleep(time.Minute); return control.ErrStepDown }))
		var ce *supervisor.ControllerError
		if err := <-ended; !errors.As(err, &ce) || !slices.Equal(ce.FailedParts(), []string{"another", "poisoned"}) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestAToleratedControllerThatWorksLongEnoughIsAsAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recovered := make(chan string, 2)
		_, ended, _ := supervise(t, supervisor.Config{Tolerated: []string{"a"}, OnEvent: on(supervisor.ControllerRecovered, func(e supervisor.Event) { recovered <- e.Controller })},
			fresh("a", func(n int) control.Controller {
				return &actor{run: func(context.Context) error {
					if n > 20 && n < 22 {
						time.Sleep(supervisor.DefaultRestartWindow + 2*time.Second)
					}
					return errors.New("boom")
				}}
			}))
		if err := <-ended; err == nil {
			t.Error("the term ended without an error")
		}
		if len(recovered) != 1 {
			t.Errorf("recovered %d times", len(recovered))
		}
	})
}
