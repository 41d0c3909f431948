package supervisor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/internal/registry/registrytest"
)

func TestMetricsAreWhereTheProgramWantsThemAndTwiceIsAsGoodAsOnce(t *testing.T) {
	registry, err := control.NewRegistry(descriptor("placed", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	mine := prometheus.NewRegistry()
	for _, to := range []prometheus.Registerer{mine, nil, mine, election.NoMetrics, nil} {
		if _, err := supervisor.NewLeader(supervisor.Config{Metrics: to}, registry); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := supervisor.Run(ctx, registry.Scoped(control.LeaderOnly), deps{}, supervisor.Config{Metrics: to}); err != nil {
			t.Fatal(err)
		}
	}
	families, err := mine.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); f.GetName() == "regent_controller_starts_total" && labels[0].GetValue() == "placed" {
				return
			}
		}
	}
	t.Errorf("the program's own registry has not got the controller: %d families", len(families))
}

// A program whose controllers come and go does not fill its metrics with names that have gone.
func TestALeaderThatIsClosedLeavesNoSeries(t *testing.T) {
	mine := prometheus.NewRegistry()
	series := func() int { return registrytest.Series(t, mine, "controller", "comes-and-goes") }
	registry, err := control.NewRegistry(descriptor("comes-and-goes", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	made := func() *supervisor.Leader[deps] {
		l, err := supervisor.NewLeader(supervisor.Config{Metrics: mine}, registry)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, other := made(), made()
	before := series()
	first.Close()
	first.Close()
	if n := series(); before == 0 || n != before {
		t.Errorf("%d series while the other shows them, want %d", n, before)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := supervisor.Run(ended, registry.Scoped(control.LeaderOnly), deps{}, supervisor.Config{Metrics: mine}); err != nil {
		t.Fatal(err)
	}
	other.Close()
	if n := series(); n != 0 {
		t.Errorf("%d series are left", n)
	}
	made().Close()
	if n := series(); n != 0 {
		t.Errorf("%d series are left of one that came again", n)
	}
}

func TestPoliciesThatMeanNothingAreAnError(t *testing.T) {
	registry, err := control.NewRegistry(descriptor("there", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	for says, policies := range map[string]control.Policies{
		"nope":  {Default: "nope"},
		"there": {Controllers: map[string]control.Policy{"elsewhere": control.Exit}},
		"never": {Controllers: map[string]control.Policy{"there": "never"}},
	} {
		if _, err := supervisor.NewLeader(supervisor.Config{Policies: policies, Metrics: prometheus.NewRegistry()}, registry); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", policies, err)
		}
	}
}

func TestANameOfAMetricThatIsTakenIsAnError(t *testing.T) {
	registry, err := control.NewRegistry(descriptor("placed", untilCancelled))
	if err != nil {
		t.Fatal(err)
	}
	mine := prometheus.NewRegistry()
	mine.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "regent_controller_state"}))
	if _, err := supervisor.NewLeader(supervisor.Config{Metrics: mine}, registry); err == nil {
		t.Error("NewLeader accepts it")
	}
	if err := supervisor.Run(t.Context(), registry.Scoped(control.LeaderOnly), deps{}, supervisor.Config{Metrics: mine}); err == nil {
		t.Error("Run accepts it")
	}
}
