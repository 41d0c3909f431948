package supervisor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
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
