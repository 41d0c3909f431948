package metrics_test

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/regent-project/regent/pkg/election/metrics"
)

// A program that serves Prometheus' default registry.
func Example() {
	err := metrics.Register(prometheus.DefaultRegisterer)
	if err != nil {
		return // another metric has one of the names
	}
	http.Handle("/metrics", promhttp.Handler())
}
