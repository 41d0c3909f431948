package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
)

// hanging is a controller that gets nothing done and does not heed its context, until it is released. The construction
// after it works.
func hanging(released <-chan struct{}, works *atomic.Int32) control.Descriptor[deps] {
	return fresh("hangs", func(n int) control.Controller {
		if n > 1 {
			return &actor{run: func(ctx context.Context) error {
				works.Add(1)
				defer works.Add(-1)
				return untilCancelled(ctx)
			}}
		}
		return &reporting{
			run: func(context.Context) error {
				works.Add(1)
				defer works.Add(-1)
				<-released
				return nil
			},
			report: func() control.Health { return control.Health{Pending: 1} },
		}
	})
}

// I1: what was judged to be stuck, and the term ended for it, may still wake up and write.
func TestRunReturnsOnlyWhenAStuckControllerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released, works := make(chan struct{}), atomic.Int32{}
		told := make(chan error, 1)
		_, ended, log := supervise(t, supervisor.Config{DrainTimeout: 5 * time.Second, OnEvent: on(supervisor.TermFailed, func(e supervisor.Event) { told <- e.Err })},
			hanging(released, &works), descriptor("other", untilCancelled))
		if err := <-told; !strings.Contains(err.Error(), "stalled") {
			t.Errorf("the term ended because of %v", err)
		}
		time.Sleep(time.Hour)
		expectRunning(t, ended)
		if !strings.Contains(log(), `is late: it has not returned since its context ended controller="hangs"`) {
			t.Errorf("it is not named as late:\n%s", log())
		}
		close(released)
		if err := <-ended; err == nil || works.Load() != 0 {
			t.Errorf("Run returned %v beside %d that work", err, works.Load())
		}
	})
}

// One that is tolerated is tried again, but not beside itself.
func TestAStuckControllerIsJoinedBeforeItIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released, works := make(chan struct{}), atomic.Int32{}
		cancel, ended, log := supervise(t, supervisor.Config{DrainTimeout: 5 * time.Second, Tolerated: []string{"hangs"}}, hanging(released, &works))
		time.Sleep(time.Hour)
		if n := works.Load(); n != 1 {
			t.Errorf("%d of it work", n)
		}
		if !strings.Contains(log(), "Controller failed and does not stop") {
			t.Errorf("it is not said to be stuck:\n%s", log())
		}
		close(released)
		time.Sleep(time.Hour)
		if n := works.Load(); n != 1 {
			t.Errorf("%d of it work once it has stopped", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The controller that ends the process does not wait for the others: one of them may never stop.
func TestAnExitIsToldAtOnce(t *testing.T) {
	for name, ending := range map[string]bool{"in the term": false, "while it drains": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released, told := make(chan struct{}), make(chan time.Time, 1)
				at := time.Now().Add(time.Minute)
				cancel, ended, _ := supervise(t, supervisor.Config{DrainTimeout: 5 * time.Second, OnEvent: on(supervisor.ProcessFailed, func(e supervisor.Event) {
					if ce, ok := errors.AsType[*supervisor.ControllerError](e.Err); !ok || ce.Controller != "exits" || !errors.Is(e.Err, control.ErrExit) {
						t.Errorf("told %v", e.Err)
					}
					told <- time.Now()
				})},
					descriptor("base", func(context.Context) error { <-released; return nil }),
					descriptor("exits", func(context.Context) error { time.Sleep(time.Until(at)); return control.ErrExit }, "base"),
					descriptor("above", func(context.Context) error { <-released; return nil }, "exits"))
				if ending {
					time.Sleep(time.Second)
					cancel()
				}
				if took := (<-told).Sub(at); took != 0 {
					t.Errorf("told %v after it exited", took)
				}
				expectRunning(t, ended)
				close(released)
				if err := <-ended; !errors.Is(err, control.ErrExit) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// A laptop that was closed, a virtual machine that was moved: nobody worked, so nobody has stalled.
func TestAPauseOfTheProcessIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, paused = 50 * time.Second, time.Hour // what an item takes
		began, pausedFor := time.Now(), atomic.Int64{}
		pause := func() bool { // on the supervisor's own goroutine: it notices as little as those it watches
			if pausedFor.Load() == 0 && time.Since(began) > 3*each/2 {
				time.Sleep(paused)
				pausedFor.Store(int64(paused))
			}
			return true
		}
		cancel, ended, log := supervise(t, supervisor.Config{StoreReachable: pause}, reporter(func() control.Health {
			worked := time.Since(began) - time.Duration(pausedFor.Load())
			return control.Health{Pending: 1, Returned: uint64(worked / each)}
		}))
		time.Sleep(paused + 10*each)
		if pausedFor.Load() == 0 {
			t.Error("the process was not paused")
		}
		if log() != "" {
			t.Errorf("logged %s", log())
		}
		cancel()
		<-ended
	})
}

// What fails together does not come back together: it would meet the same load.
func TestRestartsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 20
		var set []control.Descriptor[deps]
		var back [many]time.Time
		for i := range many {
			set = append(set, fresh(fmt.Sprintf("c%d", i), func(n int) control.Controller {
				return &actor{run: func(ctx context.Context) error {
					if n == 1 {
						return errors.New("boom")
					}
					back[i] = time.Now()
					return untilCancelled(ctx)
				}}
			}))
		}
		cancel, ended, _ := supervise(t, supervisor.Config{}, set...)
		time.Sleep(time.Minute)
		cancel()
		<-ended
		at := map[time.Time]bool{}
		for _, t := range back {
			at[t] = true
		}
		if len(at) < many/2 {
			t.Errorf("%d controllers came back at %d moments", many, len(at))
		}
	})
}

// The term is over, but what could not be undone is somebody's concern.
func TestAnErrorWhileItStopsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel, ended, log := supervise(t, supervisor.Config{},
			descriptor("stops", untilCancelled),
			descriptor("fails", func(ctx context.Context) error { <-ctx.Done(); return errors.New("cannot clean up") }))
		expectRunning(t, ended)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !strings.Contains(log(), "Controller returned an error while it stopped") || !strings.Contains(log(), "cannot clean up") || strings.Contains(log(), `controller="stops"`) {
			t.Errorf("logged %s", log())
		}
	})
}
