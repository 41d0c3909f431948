package supervisor

import (
	"sync"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/internal/series"
)

var (
	stateGauge = series.NewGauge("regent_controller_state",
		"1 for the state that a controller of this replica is in, otherwise 0. All leader-only controllers are stopped on a replica that does not lead.", "controller", "state")
	starts        = series.NewCounter("regent_controller_starts_total", "How often a controller was constructed, in all terms of this process.", "controller")
	restartsTotal = series.NewCounter("regent_controller_restarts_total",
		"How often a controller was constructed again within a term, because it had failed.", "controller")
	panics = series.NewCounter("regent_controller_panics_total", "How often a controller panicked. The log has the stacks.", "controller")
	stalls = series.NewCounter("regent_controller_stalls_total",
		"How often a controller held work and got none of it done for its stall deadline.", "controller")
	sweeping = series.NewGauge("regent_controller_sweeping",
		"1 while a controller passes over all objects, with which it begins, and works on what it has found there, otherwise 0.", "controller")
	sweptKeys = series.NewGauge("regent_controller_swept_keys",
		"Number of keys that a controller has found in its pass over all objects and has not worked on yet.", "controller")
	holding = series.NewGauge("regent_controller_held",
		"1 while all the work of a controller is of one group, such as a logical cluster, and none of it was done for its stall deadline, otherwise 0. The log names the group.", "controller")
	lateGauge = series.NewGauge("regent_late_controllers",
		"Number of controllers that have not stopped although their drain timeout is over. The log has their stacks.")
)

// counters and gauges have a series for each controller, beside stateGauge.
var (
	counters = []series.Counter{starts, restartsTotal, panics, stalls}
	gauges   = []series.Gauge{sweeping, sweptKeys, holding}
)

// ShowMetrics creates the series of all controllers of a registry, so that alerts work on replicas that have never led.
// NewLeader does it for its controllers; call it before the first Run. They stay for as long as the process lives.
// Package metrics says how they come to be served.
func ShowMetrics[D any](r *control.Registry[D]) { show(r.Names()) }

func show(controllers []string) {
	lateGauge.Add(0)
	shown.mu.Lock()
	defer shown.mu.Unlock()
	for _, name := range controllers {
		if shown.by[name]++; shown.by[name] > 1 {
			continue // its controller may work
		}
		for _, state := range states {
			stateGauge.Flag(state == stateStopped, name, string(state))
		}
		for _, counter := range counters {
			counter.Show(name)
		}
		for _, gauge := range gauges {
			gauge.Set(0, name)
		}
	}
}

// shown says how many have shown the series of a controller and not hidden them.
var shown = struct {
	mu sync.Mutex
	by map[string]int
}{by: map[string]int{}}

// hide takes back a call of show. The series of a controller that nobody shows any more go.
func hide(controllers []string) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	for _, name := range controllers {
		if shown.by[name]--; shown.by[name] > 0 {
			continue
		}
		delete(shown.by, name)
		for _, state := range states {
			stateGauge.Delete(name, string(state))
		}
		for _, counter := range counters {
			counter.Delete(name)
		}
		for _, gauge := range gauges {
			gauge.Delete(name)
		}
	}
}

// showSweep shows a controller's report of its sweep.
func showSweep(controller string, s control.Sweep) {
	sweeping.Flag(s.Running, controller)
	sweptKeys.Set(float64(s.Pending), controller)
}

// showState moves a controller's series from one state to another.
func showState(controller string, from, to state) {
	stateGauge.Set(0, controller, string(from))
	stateGauge.Set(1, controller, string(to))
}
