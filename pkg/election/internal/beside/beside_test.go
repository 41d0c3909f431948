// Package beside tests that package election works in a program that has given client-go another provider of metrics,
// as kube-apiserver has.
package beside

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

func TestMain(m *testing.M) {
	leaderelection.SetProvider(shown)
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// gauge is a program's own, as component-base and controller-runtime have one.
type gauge struct {
	mu     sync.Mutex
	values map[string]float64
}

func (g *gauge) NewLeaderMetric() leaderelection.LeaderMetric { return g }
func (g *gauge) On(name string)                               { g.set(name, 1) }
func (g *gauge) Off(name string)                              { g.set(name, 0) }
func (g *gauge) SlowpathExercised(string)                     {}

func (g *gauge) set(name string, value float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.values[name] = value
}

var shown = &gauge{values: map[string]float64{}}

// status returns what the gauge shows of a Lease.
func status(t *testing.T, lease string) float64 {
	t.Helper()
	shown.mu.Lock()
	defer shown.mu.Unlock()
	value, ok := shown.values[lease]
	if !ok {
		t.Fatalf("no series for %s", lease)
	}
	return value
}

// In each mode the gauge of the other provider is 0 on a standby, 1 during a term, and 0 from its end on, which
// client-go alone does not give. So is the gauge of package election.
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
			if ours := seriestest.Value(t, "leader_election_master_status", name); ours != 0 {
				t.Errorf("before the first term ours is %v", ours)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var during, after float64
			_ = elector.Run(ctx, func(termCtx context.Context, _ election.Term) error {
				during = status(t, name)
				if ours := seriestest.Value(t, "leader_election_master_status", name); ours != 1 {
					t.Errorf("during the term ours is %v", ours)
				}
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
}
