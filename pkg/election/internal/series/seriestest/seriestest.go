// Package seriestest is for tests of metrics.
package seriestest

import (
	"slices"
	"testing"

	"github.com/regent-project/regent/pkg/election/internal/series"
)

// Count returns how many series, of all metrics, have a label with a value.
func Count(label, value string) (n int) {
	for _, f := range series.All() {
		for _, s := range f.Read() {
			if i := slices.Index(f.Labels, label); i >= 0 && s.Values[i] == value {
				n++
			}
		}
	}
	return n
}

// Value returns the value of a gauge or a counter. The series must be there.
func Value(t *testing.T, name string, values ...string) float64 {
	t.Helper()
	for _, f := range series.All() {
		for _, s := range f.Read() {
			if f.Name == name && slices.Equal(s.Values, values) {
				return s.Value
			}
		}
	}
	t.Fatalf("there is no series %s%q", name, values)
	return 0
}
