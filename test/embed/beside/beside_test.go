// Package beside tests the metrics of the election in a program that has given client-go component-base's provider of
// metrics, as kube-apiserver has.
package beside

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/metrics"
)

// page returns what /metrics of a Kubernetes component shows.
func page(t *testing.T) string {
	t.Helper()
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return answer.Body.String()
}

// component-base's gauge is right in each phase, and what only the election counts stands beside it.
func TestTheElectionIsOnThePageOfAKubernetesComponent(t *testing.T) {
	if err := metrics.Register(legacyregistry.Registerer()); err != nil {
		t.Fatal(err)
	}
	const name = "beside"
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client = "default", name, electiontest.NewStore(name).Client()
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(phase string, lines ...string) {
		t.Helper()
		shown := page(t)
		for _, line := range lines {
			if !strings.Contains(shown, line+"\n") {
				t.Errorf("%s: the page has no line %s", phase, line)
			}
		}
	}
	expect("before the first term", `leader_election_master_status{name="beside"} 0`, `regent_election_terms_started_total{name="beside"} 0`,
		`regent_election_drain_seconds_count{name="beside"} 0`, "# TYPE regent_election_epoch gauge", "# HELP regent_election_terms_started_total [ALPHA] Terms that this process has begun.")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_ = elector.Run(ctx, func(context.Context, election.Term) error {
		expect("in a term", `leader_election_master_status{name="beside"} 1`, `regent_election_terms_started_total{name="beside"} 1`, `regent_election_epoch{name="beside"} 1`)
		cancel()
		return nil
	})
	expect("after it", `leader_election_master_status{name="beside"} 0`, `regent_election_terms_ended_total{cause="shutdown",name="beside"} 1`,
		`regent_election_drain_seconds_count{name="beside"} 1`)
	elector.Close()
	for line := range strings.Lines(page(t)) {
		if strings.HasPrefix(line, "regent_") && strings.Contains(line, `name="beside"`) {
			t.Errorf("a series is left: %s", line)
		}
	}
}
