// Package registry registers the metrics of this module where an embedder wants them.
package registry

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// None is a registry that nobody reads. Its method Register does nothing.
var None prometheus.Registerer = none{}

type none struct{}

func (none) Register(prometheus.Collector) error  { return nil }
func (none) MustRegister(...prometheus.Collector) {}
func (none) Unregister(prometheus.Collector) bool { return false }

// Register creates the metrics, if they are not created yet, and registers them at to; nil means the registry that
// Kubernetes components serve at /metrics. What is registered there already stays as it is. An error means that
// something else has a name.
func Register(to prometheus.Registerer, all ...metrics.Registerable) error {
	collectors := make([]prometheus.Collector, len(all))
	for i, m := range all {
		m.Create(nil)
		collectors[i] = m
	}
	return RegisterCreated(to, collectors...)
}

// RegisterCreated registers collectors as Register does.
func RegisterCreated(to prometheus.Registerer, all ...prometheus.Collector) error {
	if to == nil {
		to = legacyregistry.Registerer()
	}
	for _, c := range all {
		err := to.Register(c)
		if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok && already.ExistingCollector == c {
			continue
		}
		if err != nil {
			return fmt.Errorf("register a metric: %w", err)
		}
	}
	return nil
}
