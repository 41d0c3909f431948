// Package metrics shows the metrics of package election, and of the packages below it, to Prometheus. It is a module of
// its own, so that only programs that want metrics have a library of them. They are off until one line turns them on,
// at the registry that the program serves:
//
//	metrics.MustRegister(prometheus.DefaultRegisterer)    // of promhttp.Handler
//	metrics.MustRegister(legacyregistry.Registerer())     // of Kubernetes' components
//	metrics.MustRegister(ctrlmetrics.Registry)            // of controller-runtime's managers
//
// It may be called at any time: what was counted before is shown, too. The metrics are those of all packages that the
// program links, with a series for each Lease and controller that there is; docs/reference/metrics.md in Regent's
// repository lists them. Electors, Detectors and Leaders remove their series when they are closed.
package metrics

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regent-project/regent/pkg/election/internal/series"
)

// Register registers the metrics at a registry. They may be at several, and registering them again at the same one does
// nothing. An error means that something else there has the name of a metric; the others are registered.
//
// leader_election_master_status and leader_election_slowpath_total are names of upstream's. They are registered when
// the first Elector is made, and a registry that has such metrics keeps its own. If those are of client-go's provider,
// as component-base and controller-runtime have one, electors keep the first one right.
func Register(at prometheus.Registerer) error {
	var faults []error
	for _, family := range series.All() {
		if family.Upstream() {
			series.WhenSettled(func() { _ = register(at, family) })
		} else if err := register(at, family); err != nil {
			faults = append(faults, fmt.Errorf("metrics: %w", err))
		}
	}
	return errors.Join(faults...)
}

func register(at prometheus.Registerer, family *series.Family) error {
	c := collector{family}
	err := at.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok && already.ExistingCollector == c {
		return nil
	}
	return err
}

// MustRegister does what Register does, and panics on its error.
func MustRegister(at prometheus.Registerer) {
	if err := Register(at); err != nil {
		panic(err)
	}
}

// collector shows a metric as it is whenever somebody asks.
type collector struct{ family *series.Family }

// stability begins each help, as it does with Kubernetes' metrics of that level.
const stability = "[ALPHA] "

func (c collector) desc() *prometheus.Desc {
	return prometheus.NewDesc(c.family.Name, stability+c.family.Help, c.family.Labels, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc() }

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	desc := c.desc()
	for _, s := range c.family.Read() {
		to <- c.metric(desc, s)
	}
}

func (c collector) metric(desc *prometheus.Desc, s series.Sample) prometheus.Metric {
	switch c.family.Kind {
	case series.KindHistogram:
		buckets := map[float64]uint64{}
		for i, bound := range c.family.Buckets {
			buckets[bound] = s.Within[i]
		}
		return prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, s.Count, s.Sum, buckets, s.Since, s.Values...)
	case series.KindCounter:
		return prometheus.MustNewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, s.Value, s.Since, s.Values...)
	default:
		return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value, s.Values...)
	}
}

var _ prometheus.Collector = collector{}
