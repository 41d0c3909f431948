package ask

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Reading is all metrics of a replica at a time.
type Reading struct {
	At       time.Time
	families map[string]*dto.MetricFamily
}

// ReadMetrics parses metrics in Prometheus' text format.
func ReadMetrics(text []byte, at time.Time) (Reading, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return Reading{}, fmt.Errorf("the metrics cannot be read: %w", err)
	}
	return Reading{At: at, families: families}, nil
}

// IsZero reports whether nothing was read.
func (r Reading) IsZero() bool { return r.families == nil }

// Labels are those of one series.
type Labels map[string]string

// Where says which series count. Nil: all.
type Where func(Labels) bool

// Is returns a Where for one value of a label.
func Is(label string, values ...string) Where {
	return func(l Labels) bool { return slices.Contains(values, l[label]) }
}

// Has reports whether there is such a metric.
func (r Reading) Has(name string) bool { return r.families[name] != nil }

// Sum adds up the series of a counter or a gauge.
func (r Reading) Sum(name string, where Where) (sum float64) {
	r.each(name, where, func(_ Labels, m *dto.Metric) { sum += value(m) })
	return sum
}

// By adds up the series of a counter or a gauge by what key returns.
func (r Reading) By(name string, where Where, key func(Labels) string) map[string]float64 {
	sums := map[string]float64{}
	r.each(name, where, func(l Labels, m *dto.Metric) { sums[key(l)] += value(m) })
	return sums
}

func (r Reading) each(name string, where Where, do func(Labels, *dto.Metric)) {
	family := r.families[name]
	if family == nil {
		return
	}
	for _, m := range family.Metric {
		labels := Labels{}
		for _, pair := range m.Label {
			labels[pair.GetName()] = pair.GetValue()
		}
		if where == nil || where(labels) {
			do(labels, m)
		}
	}
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// Interval is what has changed between two readings of one replica.
type Interval struct{ Before, After Reading }

// Duration is how long it was.
func (i Interval) Duration() time.Duration { return i.After.At.Sub(i.Before.At) }

// Growth is by how much a counter has grown. After a restart of the replica it is what there is since.
func (i Interval) Growth(name string, where Where) float64 {
	after := i.After.Sum(name, where)
	if before := i.Before.Sum(name, where); before <= after {
		return after - before
	}
	return after
}

// Rate is by how much a counter has grown in a second.
func (i Interval) Rate(name string, where Where) float64 {
	if i.Duration() <= 0 {
		return 0
	}
	return i.Growth(name, where) / i.Duration().Seconds()
}

// Quantile estimates a quantile of what a histogram has observed, and how many observations there were. The estimate is
// the upper bound of the bucket in which the quantile is.
func (i Interval) Quantile(name string, q float64, where Where) (at time.Duration, count uint64) {
	before, after := i.Before.buckets(name, where), i.After.buckets(name, where)
	if before[math.Inf(1)] > after[math.Inf(1)] {
		before = nil // the replica was restarted
	}
	var bounds []float64
	for bound := range after {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	count = after[math.Inf(1)] - before[math.Inf(1)]
	if count == 0 {
		return 0, 0
	}
	highest := 0.0
	for _, bound := range bounds {
		if !math.IsInf(bound, 1) {
			highest = bound
		}
		if float64(after[bound]-before[bound]) >= q*float64(count) {
			break
		}
	}
	return time.Duration(highest * float64(time.Second)), count
}

func (r Reading) buckets(name string, where Where) map[float64]uint64 {
	sums := map[float64]uint64{}
	r.each(name, where, func(_ Labels, m *dto.Metric) {
		for _, b := range m.GetHistogram().GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				sums[b.GetUpperBound()] += b.GetCumulativeCount()
			}
		}
		sums[math.Inf(1)] += m.GetHistogram().GetSampleCount()
	})
	return sums
}
