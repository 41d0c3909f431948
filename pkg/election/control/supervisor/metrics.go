package supervisor

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"

	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/internal/registry"
)

var (
	stateGauge = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_controller_state", StabilityLevel: metrics.ALPHA,
		Help: "1 for the state that a controller of this replica is in, otherwise 0. All leader-only controllers are stopped on a replica that does not lead.",
	}, []string{"controller", "state"})
	starts = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_controller_starts_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a controller was constructed, in all terms of this process.",
	}, []string{"controller"})
	restartsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_controller_restarts_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a controller was constructed again within a term, because it had failed.",
	}, []string{"controller"})
	panics = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_controller_panics_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a controller panicked. The log has the stacks.",
	}, []string{"controller"})
	stalls = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_controller_stalls_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a controller held work and got none of it done for its stall deadline.",
	}, []string{"controller"})
	sweeping = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_controller_sweeping", StabilityLevel: metrics.ALPHA,
		Help: "1 while a controller passes over all objects, with which it begins, and works on what it has found there, otherwise 0.",
	}, []string{"controller"})
	sweptKeys = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_controller_swept_keys", StabilityLevel: metrics.ALPHA,
		Help: "Number of keys that a controller has found in its pass over all objects and has not worked on yet.",
	}, []string{"controller"})
	holding = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_controller_held", StabilityLevel: metrics.ALPHA,
		Help: "1 while all the work of a controller is of one group, such as a logical cluster, and none of it was done for its stall deadline, otherwise 0. The log names the group.",
	}, []string{"controller"})
	lateGauge = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_late_controllers", StabilityLevel: metrics.ALPHA,
		Help: "Number of controllers that have not stopped although their drain timeout is over. The log has their stacks.",
	})
)

// counters and gauges have a series for each controller, beside stateGauge.
var (
	counters = []*metrics.CounterVec{starts, restartsTotal, panics, stalls}
	gauges   = []*metrics.GaugeVec{sweeping, sweptKeys, holding}
)

// registerMetrics registers the metrics at a registry; nil: component-base's. It may be called any number of times.
func registerMetrics(to prometheus.Registerer) error {
	err := registry.Register(to, stateGauge, starts, restartsTotal, panics, stalls, sweeping, sweptKeys, holding, lateGauge)
	if err != nil {
		return fmt.Errorf("supervisor: Config.Metrics: %w", err)
	}
	return nil
}

// ShowMetrics registers the metrics, as Config.Metrics says, and creates the series of all controllers of a registry,
// so that alerts work on replicas that have never led. NewLeader does it for its controllers; call it before the first
// Run. They stay for as long as the process lives.
func ShowMetrics[D any](to prometheus.Registerer, r *control.Registry[D]) error {
	return show(to, r.Names())
}

func show(to prometheus.Registerer, controllers []string) error {
	if err := registerMetrics(to); err != nil {
		return err
	}
	shown.mu.Lock()
	defer shown.mu.Unlock()
	for _, name := range controllers {
		if shown.by[name]++; shown.by[name] > 1 {
			continue // its controller may work
		}
		for _, state := range states {
			stateGauge.WithLabelValues(name, string(state)).Set(0)
		}
		stateGauge.WithLabelValues(name, string(stateStopped)).Set(1)
		for _, counter := range counters {
			counter.WithLabelValues(name).Add(0)
		}
		for _, gauge := range gauges {
			gauge.WithLabelValues(name).Set(0)
		}
	}
	return nil
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
			stateGauge.DeleteLabelValues(name, string(state))
		}
		for _, counter := range counters {
			counter.DeleteLabelValues(name)
		}
		for _, gauge := range gauges {
			gauge.DeleteLabelValues(name)
		}
	}
}

// showSweep shows a controller's report of its sweep.
func showSweep(controller string, s control.Sweep) {
	running := 0.0
	if s.Running {
		running = 1
	}
	sweeping.WithLabelValues(controller).Set(running)
	sweptKeys.WithLabelValues(controller).Set(float64(s.Pending))
}

// showState moves a controller's series from one state to another.
func showState(controller string, from, to state) {
	stateGauge.WithLabelValues(controller, string(from)).Set(0)
	stateGauge.WithLabelValues(controller, string(to)).Set(1)
}
