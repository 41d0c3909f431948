package series_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/regent-project/regent/pkg/election/internal/series"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

func TestASeriesIsThereFromItsFirstValueUntilItIsDeleted(t *testing.T) {
	gauge := series.NewGauge("test_gauge", "a gauge", "name", "state")
	if got := gauge.Read(); len(got) != 0 {
		t.Errorf("a new gauge has %v", got)
	}
	gauge.Set(7, "a", "idle")
	gauge.Flag(true, "b", "idle")
	gauge.Flag(false, "b", "busy")
	for values, want := range map[[2]string]float64{{"a", "idle"}: 7, {"b", "idle"}: 1, {"b", "busy"}: 0} {
		if got := seriestest.Value(t, "test_gauge", values[:]...); got != want {
			t.Errorf("%q is %v, want %v", values, got, want)
		}
	}
	gauge.Delete("b", "idle")
	gauge.Delete("never", "there")
	if idle, b := seriestest.Count("state", "idle"), seriestest.Count("name", "b"); idle != 1 || b != 1 {
		t.Errorf("%d are idle, %d of b, want one each", idle, b)
	}
}

func TestACounterCountsAllGoroutines(t *testing.T) {
	counter, wg := series.NewCounter("test_total", "a counter"), sync.WaitGroup{}
	counter.Show()
	if got := seriestest.Value(t, "test_total"); got != 0 {
		t.Errorf("it begins with %v", got)
	}
	for range 8 {
		wg.Go(func() {
			for range 100 {
				counter.Inc()
				_ = counter.Read()
			}
		})
	}
	wg.Wait()
	counter.Show()
	if got := seriestest.Value(t, "test_total"); got != 800 {
		t.Errorf("it has counted %v", got)
	}
}

// A bucket has what is in lower ones, and a value that is a bound is in the bound's bucket.
func TestAHistogramHasCumulativeBuckets(t *testing.T) {
	histogram := series.NewHistogram("test_seconds", "a histogram", []float64{.1, 1, 10}, "name")
	histogram.Show("a")
	if got := histogram.Read(); len(got) != 1 || got[0].Count != 0 || !slices.Equal(got[0].Within, []uint64{0, 0, 0}) {
		t.Errorf("it begins with %+v", got)
	}
	for _, value := range []float64{.05, 1, 2, 30} {
		histogram.Observe(value, "a")
	}
	read := histogram.Read()
	histogram.Observe(.01, "a") // what was read does not change
	if got := read[0]; got.Count != 4 || got.Sum != 33.05 || !slices.Equal(got.Within, []uint64{1, 2, 3}) || got.Since.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestAViewIsComputedWhenItIsRead(t *testing.T) {
	now := 1.0
	series.NewGaugeView("test_view", "a view", func(show func(float64, ...string)) { show(now, "a") }, "name")
	for _, now = range []float64{3, 4} {
		if got := seriestest.Value(t, "test_view", "a"); got != now {
			t.Errorf("it is %v, want %v", got, now)
		}
	}
}

func TestFaultsOfThisModuleAreFoundAtOnce(t *testing.T) {
	twice := func() { series.NewCounter("test_twice", "", "name") }
	twice()
	unlabelled := series.NewGauge("test_labels", "", "name")
	for name, fault := range map[string]func(){"a name that comes twice": twice, "a series without its label": func() { unlabelled.Set(1) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is accepted", name)
				}
			}()
			fault()
		}()
	}
}
