package registry_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/election/internal/registry"
)

func newGauge(help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{Name: "test_gauge", Help: help, StabilityLevel: metrics.ALPHA})
}

// gathered returns the value of test_gauge as a registry shows it, and whether it does.
func gathered(t *testing.T, from prometheus.Gatherer) (float64, bool) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "test_gauge" {
			return f.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}

func TestAMetricIsShownWhereverItIsRegisteredAndRegisteringAgainDoesNothing(t *testing.T) {
	gauge := newGauge("a gauge")
	one, other := prometheus.NewRegistry(), prometheus.NewRegistry()
	for _, to := range []prometheus.Registerer{nil, one, other, one, nil, registry.None} {
		if err := registry.Register(to, gauge); err != nil {
			t.Fatal(err)
		}
	}
	gauge.Set(7)
	for name, from := range map[string]prometheus.Gatherer{"one": one, "other": other, "component-base's": legacyregistry.DefaultGatherer} {
		if value, shown := gathered(t, from); !shown || value != 7 {
			t.Errorf("%s registry: %v, shown: %v", name, value, shown)
		}
	}
}

func TestWithoutARegistryAMetricCanBeSet(t *testing.T) {
	gauge := newGauge("a gauge")
	if err := registry.Register(registry.None, gauge); err != nil {
		t.Fatal(err)
	}
	gauge.Set(7)
	registry.None.MustRegister(gauge)
	if registry.None.Unregister(gauge) {
		t.Error("a registry that nobody reads had the metric")
	}
}

func TestANameThatSomebodyElseHasIsAnError(t *testing.T) {
	for name, other := range map[string]*metrics.Gauge{"the same": newGauge("a gauge"), "with another help": newGauge("another")} {
		t.Run(name, func(t *testing.T) {
			to := prometheus.NewRegistry()
			if err := registry.Register(to, newGauge("a gauge")); err != nil {
				t.Fatal(err)
			}
			err := registry.Register(to, other)
			if err == nil || errors.Unwrap(err) == nil {
				t.Errorf("error %v, want one that wraps the registry's", err)
			}
		})
	}
}
