package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/regent-project/regent/pkg/election/internal/series"
)

var (
	gauge     = series.NewGauge("regent_test_gauge", "a gauge", "name")
	counter   = series.NewCounter("regent_test_total", "a counter", "name", "cause")
	histogram = series.NewHistogram("regent_test_seconds", "a histogram", []float64{.1, 1}, "name")
	upstreams = series.NewGauge("leader_election_test", "an upstream's gauge", "name")
)

// gathered returns what a registry shows, by the name of the metric.
func gathered(t *testing.T, from prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

func TestWhatWasCountedIsShownWhereverItIsRegistered(t *testing.T) {
	gauge.Set(7, "a")
	counter.Inc("a", "deposed")
	histogram.Observe(.5, "a")
	one, other := prometheus.NewRegistry(), prometheus.NewRegistry()
	for _, to := range []prometheus.Registerer{one, other, one} {
		MustRegister(to)
	}
	counter.Inc("a", "deposed")
	for _, registry := range []prometheus.Gatherer{one, other} {
		got := gathered(t, registry)
		if m := got["regent_test_gauge"].GetMetric()[0]; m.GetGauge().GetValue() != 7 || m.GetLabel()[0].GetName() != "name" || m.GetLabel()[0].GetValue() != "a" {
			t.Errorf("the gauge is %v", m)
		}
		m := got["regent_test_total"].GetMetric()[0]
		if m.GetCounter().GetValue() != 2 || m.GetCounter().GetCreatedTimestamp() == nil || m.GetLabel()[0].GetName() != "cause" || m.GetLabel()[0].GetValue() != "deposed" {
			t.Errorf("the counter is %v", m)
		}
		h := got["regent_test_seconds"].GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 1 || h.GetSampleSum() != .5 || h.GetBucket()[0].GetCumulativeCount() != 0 || h.GetBucket()[1].GetCumulativeCount() != 1 || h.GetBucket()[1].GetUpperBound() != 1 {
			t.Errorf("the histogram is %v", h)
		}
		if help := got["regent_test_total"].GetHelp(); help != "[ALPHA] a counter" {
			t.Errorf("the help is %q", help)
		}
	}
	gauge.Delete("a")
	if got := gathered(t, one)["regent_test_gauge"]; got != nil {
		t.Errorf("a series is left: %v", got)
	}
}

func TestANameThatSomebodyElseHasIsAnErrorThatNamesIt(t *testing.T) {
	to := prometheus.NewRegistry()
	to.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "regent_test_gauge"}))
	err := Register(to)
	if err == nil || !strings.Contains(err.Error(), "regent_test_gauge") {
		t.Errorf("error %v, want one that names the metric", err)
	}
	counter.Inc("b", "deposed")
	if gathered(t, to)["regent_test_total"] == nil {
		t.Error("the others are not registered")
	}
	defer func() {
		if recover() == nil {
			t.Error("MustRegister accepts it")
		}
	}()
	MustRegister(to)
}

// As of component-base's metrics of leader election, which have another help.
func TestARegistryKeepsUpstreamsOwnMetrics(t *testing.T) {
	to, theirs := prometheus.NewRegistry(), prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leader_election_test", Help: "theirs"}, []string{"name"})
	mine := prometheus.NewRegistry()
	MustRegister(to)
	MustRegister(mine)
	to.MustRegister(theirs) // they come late
	series.Settle()
	theirs.WithLabelValues("a").Set(1)
	upstreams.Set(0, "a")
	if got := gathered(t, to)["leader_election_test"]; got.GetHelp() != "theirs" || got.GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Errorf("it shows %v", got)
	}
	if got := gathered(t, mine)["leader_election_test"]; got.GetMetric()[0].GetGauge().GetValue() != 0 || got.GetHelp() == "theirs" {
		t.Errorf("another registry shows %v", got)
	}
	late := prometheus.NewRegistry()
	MustRegister(late)
	if gathered(t, late)["leader_election_test"] == nil {
		t.Error("a registry that comes later does not show it")
	}
}
