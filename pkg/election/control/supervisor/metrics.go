package supervisor

import (
	"sync"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/internal/series"
)

var (
	stateGauge = series.NewGauge("regent_controller_state",
		"Number of runs of a controller of this replica that are in a state: 1 for one of them, or with ranges one for each that the replica leads. stopped is 1 if there is no run: all leader-only controllers are stopped on a replica that does not lead.", "controller", "state")
	starts        = series.NewCounter("regent_controller_starts_total", "How often a controller was constructed, in all terms of this process.", "controller")
	restartsTotal = series.NewCounter("regent_controller_restarts_total",
		"How often a controller was constructed again within a term, because it had failed.", "controller")
	panics = series.NewCounter("regent_controller_panics_total", "How often a controller panicked. The log has the stacks.", "controller")
	stalls = series.NewCounter("regent_controller_stalls_total",
		"How often a controller held work and got none of it done for its stall deadline.", "controller")
	sweeping = series.NewGauge("regent_controller_sweeping",
		"Number of runs of a controller that pass over all objects, with which each begins, or work on what they have found there. There is one run, or with ranges one for each that the replica leads.", "controller")
	sweptKeys = series.NewGauge("regent_controller_swept_keys",
		"Number of keys that a controller has found in its pass over all objects and has not worked on yet.", "controller")
	holding = series.NewGauge("regent_controller_held",
		"Number of runs of a controller whose work is all of one group, such as a logical cluster, and of which none was done for its stall deadline. The log names the group.", "controller")
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

// A controller may run several times in a process, in terms of different Leases, so its gauges are sums.

// showSweep shows what has changed in a controller's report of its sweep.
func showSweep(controller string, from, to control.Sweep) {
	sweeping.Add(number(to.Running)-number(from.Running), controller)
	sweptKeys.Add(float64(to.Pending-from.Pending), controller)
}

// showHeld shows whether a controller is held, and was.
func showHeld(controller string, was, is bool) { holding.Add(number(is)-number(was), controller) }

// showState moves one run of a controller from one state to another. A controller is stopped while no run is in another
// state.
func showState(controller string, from, to state) {
	runs.mu.Lock()
	defer runs.mu.Unlock()
	for s, by := range map[state]int{from: -1, to: 1} {
		if s != stateStopped {
			runs.of[controller] += by
			stateGauge.Add(float64(by), controller, string(s))
		}
	}
	if runs.of[controller] == 0 {
		delete(runs.of, controller)
	}
	stateGauge.Flag(runs.of[controller] == 0, controller, string(stateStopped))
}

// runs counts the runs of each controller that are not stopped.
var runs = struct {
	mu sync.Mutex
	of map[string]int
}{of: map[string]int{}}

func number(so bool) float64 {
	if so {
		return 1
	}
	return 0
}
