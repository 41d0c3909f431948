// Package beside tests that package election works in a program that has given client-go another provider of metrics,
// as kube-apiserver has.
package beside

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/component-base/metrics/testutil"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// status returns leader_election_master_status of a Lease, as /metrics shows it.
func status(t *testing.T, lease string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			if f.GetName() == "leader_election_master_status" && testutil.LabelsMatch(series, map[string]string{"name": lease}) {
				return series.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no series for %s", lease)
	return 0
}

// In each mode the gauge of the other provider is 0 on a standby, 1 during a term, and 0 from its end on, which
// client-go alone does not give. The metrics that only this package has are there, too.
func TestTheGaugeOfAnotherProviderIsRight(t *testing.T) {
	for _, mode := range []election.Mode{election.Renewed{}, election.ForLife{}} {
		t.Run(string(mode.Name()), func(t *testing.T) {
			name := "beside-" + string(mode.Name())
			store := electiontest.NewStore(name)
			cfg := election.DefaultConfig()
			cfg.Namespace, cfg.Name, cfg.Mode, cfg.Client = "default", name, mode, store.Client()
			elector, err := election.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if got := status(t, name); got != 0 {
				t.Errorf("before the first term it is %v", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var during, after float64
			_ = elector.Run(ctx, func(termCtx context.Context, _ election.Term) error {
				during = status(t, name)
				cancel()
				<-termCtx.Done()
				// The term is being drained, and renewals go on.
				for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
					if after = status(t, name); after == 0 {
						break
					}
				}
				return nil
			})
			if during != 1 || after != 0 {
				t.Errorf("during the term it is %v, after it %v", during, after)
			}
		})
	}
	if _, err := legacyregistry.DefaultGatherer.Gather(); err != nil {
		t.Error(err)
	}
}
