// Package series counts what the packages of this module tell of themselves. They count always, which costs next to
// nothing, and know no library of metrics: so a program has none in its graph of modules for the election's sake.
// Package metrics, a module of its own, shows what is counted to Prometheus. A newer version of this package may meet
// an older one of that module: names are added here, and none is changed.
package series

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind says how the values of a metric come to be.
type Kind string

// The kinds of metrics.
const (
	KindGauge     Kind = "gauge"
	KindCounter   Kind = "counter"
	KindHistogram Kind = "histogram"
)

// Family is a metric: all series of one name. Its fields do not change. Any goroutine may call its methods.
type Family struct {
	Name, Help string
	Kind       Kind
	Labels     []string
	// Buckets are the upper bounds of a histogram's buckets, without infinity.
	Buckets []float64

	mu      sync.Mutex
	samples map[string]*Sample
	view    func(show func(value float64, labels ...string))
}

// Sample is a series as it is now.
type Sample struct {
	// Values are those of the family's labels, in their order.
	Values []string
	// Value is a gauge's or a counter's, Sum that of all observations of a histogram.
	Value, Sum float64
	// Within is how many observations of a histogram are in each bucket, those of lower buckets included, and Count
	// how many there are.
	Within []uint64
	Count  uint64
	// Since is when the series began.
	Since time.Time
}

var all struct {
	mu       sync.Mutex
	families []*Family
}

// All returns the metrics of all packages that are linked.
func All() []*Family {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.Clone(all.families)
}

// add makes a metric known. A name that comes twice is a fault of this module.
func add(f *Family) *Family {
	all.mu.Lock()
	defer all.mu.Unlock()
	if slices.ContainsFunc(all.families, func(o *Family) bool { return o.Name == f.Name }) {
		panic("two metrics are called " + f.Name)
	}
	f.samples = map[string]*Sample{}
	all.families = append(all.families, f)
	return f
}

// Gauge is a metric that goes up and down.
type Gauge struct{ *Family }

// NewGauge returns a gauge without series.
func NewGauge(name, help string, labels ...string) Gauge {
	return Gauge{add(&Family{Name: name, Help: help, Kind: KindGauge, Labels: labels})}
}

// Set sets the series with these values of the labels.
func (g Gauge) Set(value float64, values ...string) {
	g.change(values, func(s *Sample) { s.Value = value })
}

// Add adds to the series with these values of the labels, and returns its value.
func (g Gauge) Add(delta float64, values ...string) (sum float64) {
	g.change(values, func(s *Sample) {
		s.Value += delta
		sum = s.Value
	})
	return sum
}

// Flag sets the series to 1 or 0.
func (g Gauge) Flag(so bool, values ...string) {
	value := 0.0
	if so {
		value = 1
	}
	g.Set(value, values...)
}

// Counter is a metric that only grows.
type Counter struct{ *Family }

// NewCounter returns a counter without series.
func NewCounter(name, help string, labels ...string) Counter {
	return Counter{add(&Family{Name: name, Help: help, Kind: KindCounter, Labels: labels})}
}

// Inc counts one more in the series with these values of the labels.
func (c Counter) Inc(values ...string) { c.change(values, func(s *Sample) { s.Value++ }) }

// Show creates the series, if it is not there, with 0.
func (c Counter) Show(values ...string) { c.change(values, func(*Sample) {}) }

// Histogram is a metric of how often which values were observed.
type Histogram struct{ *Family }

// NewHistogram returns a histogram without series. Its buckets are sorted.
func NewHistogram(name, help string, buckets []float64, labels ...string) Histogram {
	return Histogram{add(&Family{Name: name, Help: help, Kind: KindHistogram, Buckets: buckets, Labels: labels})}
}

// Observe counts a value in the series with these values of the labels.
func (h Histogram) Observe(value float64, values ...string) {
	h.change(values, func(s *Sample) {
		s.Count++
		s.Sum += value
		for i, bound := range h.Buckets {
			if value <= bound {
				s.Within[i]++
			}
		}
	})
}

// Show creates the series, if it is not there, without observations.
func (h Histogram) Show(values ...string) { h.change(values, func(*Sample) {}) }

// NewGaugeView makes a gauge that is computed whenever somebody reads it: view shows each of its series.
func NewGaugeView(name, help string, view func(show func(value float64, values ...string)), labels ...string) *Family {
	f := &Family{Name: name, Help: help, Kind: KindGauge, Labels: labels, view: view}
	return add(f)
}

// Delete removes the series with these values of the labels.
func (f *Family) Delete(values ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.samples, key(values))
}

// Read returns all series, in no order.
func (f *Family) Read() (samples []Sample) {
	if f.view != nil {
		f.view(func(value float64, values ...string) { samples = append(samples, Sample{Values: values, Value: value}) })
		return samples
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.samples {
		one := *s
		one.Within = slices.Clone(s.Within)
		samples = append(samples, one)
	}
	return samples
}

func (f *Family) change(values []string, change func(*Sample)) {
	if len(values) != len(f.Labels) {
		panic(fmt.Sprintf("%s has labels %q, and not %d", f.Name, f.Labels, len(values)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.samples[key(values)]
	if s == nil {
		s = &Sample{Values: slices.Clone(values), Within: make([]uint64, len(f.Buckets)), Since: time.Now()}
		f.samples[key(values)] = s
	}
	change(s)
}

// key tells series apart. No value of a label has a byte 0.
func key(values []string) string { return strings.Join(values, "\x00") }
