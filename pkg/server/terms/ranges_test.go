package terms

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// idler works for its range until its term ends, and reports that one key waits.
type idler struct{}

func (idler) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (idler) Report() controllers.Health { return controllers.Health{Pending: 1} }

// inRange returns a logical cluster of a range.
func inRange(index, of int) logicalcluster.Name {
	for n := 0; ; n++ {
		if name := logicalcluster.Name(fmt.Sprint("c", n)); clusters.RangeOf(name, of) == index {
			return name
		}
	}
}

// The terms of two ranges go on side by side: each has controllers of its own, for its clusters, and what one of them
// does is told of that range, and as a part of the whole.
func TestEachRangeHasControllersOfItsOwnI17(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2
		ctx, end := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		var made [n]int
		registry, err := controllers.NewRegistry(controllers.Descriptor{Name: "works", New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
			for k := range n {
				if deps.Range.Has(inRange(k, n)) {
					made[k]++
				}
			}
			if deps.Range.Has(inRange(1, n)) && made[1] == 1 {
				return nil, errors.New("not at first")
			}
			return idler{}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		runner, err := New(Config{Lease: "l", Registry: registry, API: &loopback.Server{}, Warn: func(string) {}, Supervision: supervisor.Config{DrainTimeout: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		lead := runner.RangeLeader(controllers.LeaderOnly)
		store := electiontest.NewStore("l")
		ended := make(chan error, n)
		for k := range n {
			cfg := election.DefaultConfig()
			cfg.Namespace, cfg.Name, cfg.Cluster, cfg.Replica = "kube-system", []string{"l-0", "l-1"}[k], clusters.SystemAdmin, "a"
			client := store.Client()
			cfg.Client = client
			elector, err := election.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				ended <- elector.Run(ctx, func(ctx context.Context, term election.Term) error {
					return lead(ctx, ranges.Range{Index: k, Of: n}, term)
				})
				client.Wait()
			}()
		}
		time.Sleep(10 * time.Second)
		got := runner.Status()[0]
		if made != [n]int{1, 2} || got.State != supervisor.Running || got.Restarts != 1 || got.LastError == nil || got.Health.Pending != n ||
			got.Ranges[0].Restarts != 0 || got.Ranges[1].Restarts != 1 || got.Ranges[0].LastError != nil {
			t.Errorf("made %v, status %+v", made, got)
		}
		for k := range n {
			if term, _, ok := runner.Term(k); !ok || term.Token().Name != []string{"l-0", "l-1"}[k] {
				t.Errorf("range %d is led in %v, %t", k, term.Token(), ok)
			}
		}
		if err := runner.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		end()
		for range n {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if got := runner.Status()[0]; got.State != supervisor.Stopped || got.Health.Pending != 0 {
			t.Errorf("when all has ended: %+v", got)
		}
		if _, _, ok := runner.Term(1); ok {
			t.Error("a term goes on")
		}
	})
}

// What is worst of all ranges is what is told of the whole.
func TestTheWorstOfAllRangesIsTold(t *testing.T) {
	var s Status
	s.State = supervisor.Stopped
	for k, state := range []string{supervisor.Stopped, supervisor.Running, supervisor.Stalled, supervisor.Running} {
		s.add(ranges.Range{Index: k, Of: 4}, supervisor.Status{State: state, HeldBy: map[int]string{2: "c"}[k], Stalls: k})
	}
	if s.State != supervisor.Stalled || s.HeldBy != "c" || s.Stalls != 6 || len(s.Ranges) != 4 {
		t.Errorf("%+v", s)
	}
}
