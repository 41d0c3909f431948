// Package registrytest is for tests of metrics.
package registrytest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Series returns how many series have a label with a value.
func Series(t *testing.T, of prometheus.Gatherer, label, value string) (n int) {
	t.Helper()
	families, err := of.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					n++
				}
			}
		}
	}
	return n
}
