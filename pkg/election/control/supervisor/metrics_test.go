package supervisor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

// A program whose controllers come and go does not fill its metrics with names that have gone.
func TestALeaderThatIsClosedLeavesNoSeries(t *testing.T) {
	series := func() int { return seriestest.Count("controller", "comes-and-goes") }
	registry, err := control.NewRegistry(descriptor("comes-and-goes", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	made := func() *supervisor.Leader[deps] {
		l, err := supervisor.NewLeader(supervisor.Config{}, registry)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, other := made(), made()
	before := series()
	first.Close()
	first.Close()
	if n := series(); before == 0 || n != before {
		t.Errorf("%d series while the other shows them, want %d", n, before)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := supervisor.Run(ended, registry.Scoped(control.LeaderOnly), deps{}, supervisor.Config{}); err != nil {
		t.Fatal(err)
	}
	other.Close()
	if n := series(); n != 0 {
		t.Errorf("%d series are left", n)
	}
	made().Close()
	if n := series(); n != 0 {
		t.Errorf("%d series are left of one that came again", n)
	}
}

// A controller may run in terms of several Leases at the same time. Its gauges are sums, and it is stopped when no run
// is left.
func TestTheRunsOfAControllerAreCounted(t *testing.T) {
	registry, err := control.NewRegistry(descriptor("runs-twice", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	supervisor.ShowMetrics(registry)
	synctest.Test(t, func(t *testing.T) {
		expect := func(when string, running, stopped float64) {
			t.Helper()
			synctest.Wait()
			is := func(state string) float64 { return seriestest.Value(t, "regent_controller_state", "runs-twice", state) }
			if is("running") != running || is("stopped") != stopped {
				t.Errorf("%s: %v are running and %v stopped", when, is("running"), is("stopped"))
			}
		}
		expect("before", 0, 1)
		var ends []func()
		for n := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- supervisor.Run(ctx, registry.Scoped(control.LeaderOnly), deps{}, supervisor.Config{}) }()
			ends = append(ends, func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			expect("begun", float64(n+1), 0)
		}
		ends[0]()
		expect("one has ended", 1, 0)
		ends[1]()
		expect("all have ended", 0, 1)
	})
}

func TestPoliciesThatMeanNothingAreAnError(t *testing.T) {
	registry, err := control.NewRegistry(descriptor("there", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	for says, policies := range map[string]control.Policies{
		"nope":  {Default: "nope"},
		"there": {Controllers: map[string]control.Policy{"elsewhere": control.Exit}},
		"never": {Controllers: map[string]control.Policy{"there": "never"}},
	} {
		if _, err := supervisor.NewLeader(supervisor.Config{Policies: policies}, registry); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", policies, err)
		}
	}
}

// Whoever runs controllers has the metric, also if they were never shown.
func TestLateControllersAreCountedFromTheStart(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	registry, err := control.NewRegistry(descriptor("a", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Run(ended, registry.Scoped(control.LeaderOnly), deps{}, supervisor.Config{}); err != nil {
		t.Fatal(err)
	}
	if n := seriestest.Value(t, "regent_late_controllers"); n != 0 {
		t.Errorf("%v are late", n)
	}
}
