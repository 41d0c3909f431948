package leader_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// newGroup returns a Group of a replica on the server, of an election of 6 ranges.
func (s *server) newGroup(t *testing.T, replica string) *leader.Group {
	t.Helper()
	cfg := config()
	cfg.Replica, cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = replica, 2*time.Second, 1500*time.Millisecond, 200*time.Millisecond
	g, err := leader.NewGroup(s.config, cfg, 6)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// I17: processes with one call each lead a share, and what one leaves that stops is led by the others.
func TestGroupsLeadTheirShares(t *testing.T) {
	s := newServer(t)
	var leads [2]atomic.Int32
	var groups []*leader.Group
	for i, replica := range []string{"a", "b"} {
		g := s.newGroup(t, replica)
		if err := g.Start(t.Context(), func(ctx context.Context, of ranges.Range, term election.Term) error {
			if of.Of != 6 || !strings.HasPrefix(term.Token().Name, leaseName) {
				t.Errorf("it leads range %v under Lease %s", of, term.Token().Name)
			}
			leads[i].Add(1)
			defer leads[i].Add(-1)
			<-ctx.Done()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	eventually(t, "each leads its share", func() bool { return leads[0].Load() == 3 && leads[1].Load() == 3 })
	if err := groups[0].Check(nil); err != nil {
		t.Errorf("a process that leads its share is not healthy: %v", err)
	}
	if err := groups[0].Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "the other leads all", func() bool { return leads[0].Load() == 0 && leads[1].Load() == 6 })
	if err := groups[1].Stop(); err != nil {
		t.Error(err)
	}
	if err := groups[1].Run(t.Context(), nil); err == nil {
		t.Error("it was run again")
	}
}

// Work of a range that does not stop is told by the health check, and costs no other range.
func TestAGroupWithWorkThatDoesNotStopIsNotHealthy(t *testing.T) {
	s := newServer(t)
	g := s.newGroup(t, "a")
	var leads atomic.Int32
	stuck := make(chan struct{})
	if err := g.Start(t.Context(), func(ctx context.Context, of ranges.Range, _ election.Term) error {
		leads.Add(1)
		defer leads.Add(-1)
		<-ctx.Done()
		if of.Index == 4 {
			<-stuck
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads all", func() bool { return leads.Load() == 6 })
	if _, err := g.Ranges().StepDown(4, "to see", ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the check says which range it is", func() bool {
		err := g.Check(nil)
		return err != nil && strings.Contains(err.Error(), "range 4")
	})
	if n := leads.Load(); n != 6 { // it works on, without a lease
		t.Errorf("%d of 6 ranges are worked at", n)
	}
	close(stuck)
	eventually(t, "it leads all again", func() bool { return g.Check(nil) == nil && leads.Load() == 6 })
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsWrongWithAGroupIsSaid(t *testing.T) {
	s := newServer(t)
	for want, change := range map[string]func(*leader.Config, *int){
		"Ranges 0": func(_ *leader.Config, n *int) { *n = 0 },
		"Priority": func(cfg *leader.Config, _ *int) {
			cfg.Adjust = func(e *election.Config) { e.Priority = 1 }
		},
		"Namespace": func(cfg *leader.Config, _ *int) { cfg.Namespace = "" },
	} {
		cfg, n := config(), 6
		change(&cfg, &n)
		if _, err := leader.NewGroup(s.config, cfg, n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := leader.NewGroup(nil, config(), 6); err == nil {
		t.Error("without a rest.Config")
	}
}
