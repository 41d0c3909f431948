package survey

import (
	"context"
	"testing"

	"github.com/regent-project/regent/pkg/server/status"
)

// A leader records its term once its takeover is over. Why it leads, and how long nobody did, is told before, by
// whoever is asked.
func TestWhyTheNewestTermBeganIsToldAtOnce(t *testing.T) {
	h := newHouse(t)
	for name, c := range map[string]struct {
		recorded status.Term
		want     string
		gap      float64
	}{
		"not recorded yet":     {status.Term{Epoch: 7}, "death", 0.007},
		"known, by the leader": {status.Term{Epoch: 7, Trigger: "death"}, "death", 0.007},
		"recorded":             {status.Term{Epoch: 7, Trigger: "suspicion", Gap: 0.009, Phases: map[string]float64{"detect": 0.001}}, "suspicion", 0.009},
		"another's":            {status.Term{Epoch: 6}, "", 0},
		"another range's":      {status.Term{Epoch: 7, Range: 5}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			leads := status.Replica{Shard: "root", Name: "leader", Election: status.Election{State: "leading", Epoch: 7, Leader: "leader", Trigger: "death", Term: &status.Term{Epoch: 7, Gap: 0.007, Phases: map[string]float64{"detect": 0.001}}}}
			self := follower("self", "leader")
			self.Election.LeaderURL = h.serve(h.authority, answerWith(leads))
			all := []status.Term{c.recorded, {Epoch: 5}}
			s := h.survey(self, func(cfg *Config) {
				cfg.Terms = func(context.Context) (status.Terms, error) { return status.Terms{Terms: all}, nil }
			})
			if got := s.Shard(t.Context()).Terms; len(got) != 2 || got[0].Trigger != c.want || got[0].Gap != c.gap || got[1].Trigger != "" {
				t.Errorf("%+v, want trigger %q, and a gap of %v s", got, c.want, c.gap)
			}
			if all[0].Trigger != c.recorded.Trigger || all[0].Gap != c.recorded.Gap {
				t.Errorf("what all share was changed: %+v", all)
			}
		})
	}
}
