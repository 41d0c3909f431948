package supervisor_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

// reporting is a controller that reports.
type reporting struct {
	run    func(context.Context) error
	report func() control.Health
}

func (r *reporting) Run(ctx context.Context) error { return r.run(ctx) }

func (r *reporting) Report() control.Health { return r.report() }

func reporter(report func() control.Health) control.Descriptor[deps] {
	return fresh("a", func(int) control.Controller { return &reporting{untilCancelled, report} })
}

func TestAControllerStallsOnlyIfItHoldsWorkAndGetsNoneOfItDone(t *testing.T) {
	var n atomic.Uint64
	for name, c := range map[string]struct {
		report   func() control.Health
		deadline time.Duration
		stalls   bool
	}{
		"idle":    {report: func() control.Health { return control.Health{} }},
		"at work": {report: func() control.Health { return control.Health{Pending: 5, Returned: n.Add(1)} }},
		"stuck":   {report: func() control.Health { return control.Health{Pending: 5, Returned: 3} }, stalls: true},
		"the sweep is stuck behind the rest": {report: func() control.Health {
			return control.Health{Pending: 5, Returned: n.Add(1), Sweep: control.Sweep{Running: true, Pending: 3}}
		}, stalls: true},
		"the rest is stuck behind the sweep": {report: func() control.Health {
			done := n.Add(1)
			return control.Health{Pending: 5, Returned: done, Sweep: control.Sweep{Running: true, Pending: 3, Returned: done}}
		}, stalls: true},
		"the sweep has found nothing more": {report: func() control.Health {
			return control.Health{Pending: 5, Returned: n.Add(1), Sweep: control.Sweep{Running: true}}
		}},
		"never to be asked": {report: func() control.Health { return control.Health{Pending: 5} }, deadline: -1},
		"slow by nature":    {report: func() control.Health { return control.Health{Pending: 5} }, deadline: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := reporter(c.report)
				d.StallDeadline = c.deadline
				cancel, ended, log := supervise(t, supervisor.Config{}, d)
				time.Sleep(90 * time.Second)
				if stalled := strings.Contains(log(), "Controller is stalled"); stalled != c.stalls {
					t.Errorf("stalled after 90 s: %v\n%s", stalled, log())
				}
				time.Sleep(time.Minute)
				if failed := strings.Contains(log(), "Controller failed"); failed != c.stalls {
					t.Errorf("failed after 150 s: %v\n%s", failed, log())
				}
				cancel()
				<-ended
			})
		})
	}
}

// The time that a controller stood still is no work. A stall may take longer than the window in which failures are
// counted: if it counted as work, a controller that stalls each time would be tried for ever.
func TestAControllerThatStallsEachTimeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lives := 0
		cfg := supervisor.Config{RestartLimit: 3, RestartWindow: time.Minute}
		cancel, ended, log := supervise(t, cfg, fresh("a", func(int) control.Controller {
			lives++
			return &reporting{untilCancelled, func() control.Health { return control.Health{Pending: 1} }}
		}))
		defer cancel()
		select {
		case err := <-ended:
			if err == nil || lives != 1+cfg.RestartLimit {
				t.Errorf("%d lives, then %v", lives, err)
			}
		case <-time.After(time.Hour):
			t.Errorf("%d lives in an hour: %s", lives, log())
			cancel()
			<-ended
		}
	})
}

func TestAStalledControllerThatGoesOnIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		cancel, ended, log := supervise(t, supervisor.Config{}, reporter(func() control.Health {
			if time.Since(began) < 100*time.Second {
				return control.Health{Pending: 1, Returned: 1}
			}
			return control.Health{Pending: 1, Returned: uint64(time.Since(began))}
		}))
		time.Sleep(10 * time.Minute)
		cancel()
		<-ended
		if n := strings.Count(log(), "is stalled"); n != 1 || strings.Count(log(), "no longer stalled") != 1 || strings.Contains(log(), "failed") {
			t.Errorf("logged %s", log())
		}
	})
}

func TestNothingStallsWhileTheStoreIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		outage := func() bool { return time.Since(began) > 30*time.Second && time.Since(began) < time.Hour }
		cancel, ended, log := supervise(t, supervisor.Config{StoreReachable: func() bool { return !outage() }},
			reporter(func() control.Health { return control.Health{Pending: 1} }))
		time.Sleep(time.Hour)
		if log() != "" {
			t.Errorf("logged during the outage: %s", log())
		}
		time.Sleep(35 * time.Second) // 65 in all
		if !strings.Contains(log(), "Controller is stalled") {
			t.Error("not stalled, although the store was reachable for a minute")
		}
		cancel()
		<-ended
	})
}

func TestAReportThatPanicsFailsItsControllerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancel, ended, log := supervise(t, supervisor.Config{Tolerated: []string{"a"}}, reporter(func() control.Health { panic("oh") }))
		time.Sleep(time.Minute)
		expectRunning(t, ended)
		cancel()
		<-ended
		if !strings.Contains(log(), "panic in Report: oh") {
			t.Errorf("logged %s", log())
		}
	})
}

func TestTheProbeFailsOnlyIfTheSupervisorItselfHangs(t *testing.T) {
	ping := func(t *testing.T, p *supervisor.Probe) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return p.Ping(ctx)
	}
	synctest.Test(t, func(t *testing.T) {
		p := supervisor.NewProbe()
		if err := ping(t, p); err != nil {
			t.Errorf("before a term: %v", err)
		}
		wake := make(chan struct{})
		cancel, ended, _ := supervise(t, supervisor.Config{Probe: p, DrainTimeout: time.Second},
			descriptor("hangs", func(context.Context) error { <-wake; return nil }),
			descriptor("fails", func(context.Context) error { panic("so it fails") }))
		time.Sleep(500 * time.Millisecond)
		if err := ping(t, p); err != nil {
			t.Errorf("during a term: %v", err)
		}
		cancel()
		time.Sleep(time.Hour)
		if err := ping(t, p); err != nil {
			t.Errorf("with a late controller: %v", err)
		}
		close(wake)
		<-ended
		if err := ping(t, p); err != nil {
			t.Errorf("after the term: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, wake := supervisor.NewProbe(), make(chan struct{})
		hang := func() bool { <-wake; return true } // on the supervisor's own goroutine
		cancel, ended, _ := supervise(t, supervisor.Config{Probe: p, StoreReachable: hang}, descriptor("a", untilCancelled))
		time.Sleep(time.Minute)
		if err := ping(t, p); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("while the supervisor hangs: %v", err)
		}
		close(wake)
		cancel()
		<-ended
	})
}

// counters are the metrics of a controller that only grow.
var counters = []string{"starts", "restarts", "panics", "stalls"}

func TestAReportThatHangsIsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		p := supervisor.NewProbe()
		hangs := reporter(func() control.Health { <-wake; return control.Health{} })
		cancel, ended, log := supervise(t, supervisor.Config{Probe: p, DrainTimeout: time.Second}, hangs,
			control.Descriptor[deps]{Name: "b", New: reporter(func() control.Health { return control.Health{Pending: 1} }).New})
		time.Sleep(90 * time.Second)
		for _, name := range []string{"a", "b"} { // one does not keep the other from being watched
			if !strings.Contains(log(), `returned none for 1m0s" controller="`+name+`"`) {
				t.Errorf("%s is not stalled:\n%s", name, log())
			}
		}
		ctx, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		if err := p.Ping(ctx); err != nil {
			t.Errorf("the supervisor itself: %v", err)
		}
		cancel()
		time.Sleep(2 * time.Second)
		if !strings.Contains(log(), `Controller is late: it has not returned since its context ended controller="a"`) {
			t.Errorf("the one that hangs is not named:\n%s", log())
		}
		close(wake)
		<-ended
	})
}

// One that holds everything up before it is ready has stalled, too; so has a constructor that does not return.
func TestAControllerStallsBeforeItIsReady(t *testing.T) {
	for name, d := range map[string]control.Descriptor[deps]{
		"not ready": fresh("a", func(int) control.Controller {
			return &slowReporter{reporting{untilCancelled, func() control.Health { return control.Health{Pending: 1} }}}
		}),
		"not constructed": {Name: "a", New: func(ctx context.Context, _ deps) (control.Controller, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ended, log := supervise(t, supervisor.Config{DrainTimeout: time.Second}, d, descriptor("b", untilCancelled, "a"))
				began := time.Now()
				err := <-ended
				if err == nil || !strings.Contains(err.Error(), "stalled") {
					t.Errorf("Run returned %v", err)
				}
				// It stalls again and again, each time for twice the deadline of a minute.
				if took := time.Since(began); took < 12*time.Minute || took > 13*time.Minute {
					t.Errorf("the term lasted %v:\n%s", took, log())
				}
			})
		})
	}
}

type slowReporter struct{ reporting }

func (*slowReporter) Ready() <-chan struct{} { return make(chan struct{}) }

func TestMetricsShowEveryControllerFromTheStart(t *testing.T) {
	registry, err := control.NewRegistry(descriptor("shown", untilCancelled), control.Descriptor[deps]{
		Name: "shown-too", Scope: control.EveryReplica, New: descriptor("", untilCancelled).New})
	if err != nil {
		t.Fatal(err)
	}
	supervisor.ShowMetrics(registry)
	for _, controller := range []string{"shown", "shown-too"} {
		if got := sample(t, "regent_controller_state", controller, "stopped"); got != 1 {
			t.Errorf("%s is not stopped: %v", controller, got)
		}
		if got := sample(t, "regent_controller_state", controller, "running"); got != 0 {
			t.Errorf("%s is running: %v", controller, got)
		}
		for _, name := range counters {
			sample(t, "regent_controller_"+name+"_total", controller, "")
		}
	}
	before := map[string]float64{}
	for _, name := range counters {
		before[name] = sample(t, "regent_controller_"+name+"_total", "shown", "")
	}
	synctest.Test(t, func(t *testing.T) {
		cancel, ended, _ := supervise(t, supervisor.Config{}, fresh("shown", func(n int) control.Controller {
			return &actor{run: func(ctx context.Context) error {
				if n == 1 {
					panic("once")
				}
				return untilCancelled(ctx)
			}}
		}))
		synctest.Wait()
		if sample(t, "regent_controller_state", "shown", "restarting") != 1 {
			t.Error("not shown as restarting")
		}
		time.Sleep(time.Second)
		if sample(t, "regent_controller_state", "shown", "running") != 1 || sample(t, "regent_controller_state", "shown", "stopped") != 0 {
			t.Error("not shown as running")
		}
		cancel()
		<-ended
		for name, want := range map[string]float64{"starts": 2, "restarts": 1, "panics": 1, "stalls": 0} {
			if got := sample(t, "regent_controller_"+name+"_total", "shown", "") - before[name]; got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		if sample(t, "regent_controller_state", "shown", "stopped") != 1 {
			t.Error("not shown as stopped")
		}
	})
}

// sample reads a metric of a controller; state may be empty. It fails if there is no such series.
func sample(t *testing.T, name, controller, state string) float64 {
	t.Helper()
	if state == "" {
		return seriestest.Value(t, name, controller)
	}
	return seriestest.Value(t, name, controller, state)
}
