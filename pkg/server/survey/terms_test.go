package survey

import (
	"context"
	"testing"

	"github.com/regent-project/regent/pkg/server/status"
)

// A leader records its term once its takeover is over. Why it leads is told before, by whoever is asked.
func TestWhyTheNewestTermBeganIsToldAtOnce(t *testing.T) {
	h := newHouse(t)
	for name, c := range map[string]struct {
		recorded status.Term
		want     string
	}{
		"not recorded yet": {status.Term{Epoch: 7}, "death"},
		"recorded":         {status.Term{Epoch: 7, Trigger: "suspicion"}, "suspicion"},
		"another's":        {status.Term{Epoch: 6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			leads := status.Replica{Shard: "root", Name: "leader", Election: status.Election{State: "leading", Epoch: 7, Leader: "leader", Trigger: "death"}}
			self := follower("self", "leader")
			self.Election.LeaderURL = h.serve(h.authority, answerWith(leads))
			all := []status.Term{c.recorded, {Epoch: 5}}
			s := h.survey(self, func(cfg *Config) {
				cfg.Terms = func(context.Context) (status.Terms, error) { return status.Terms{Terms: all}, nil }
			})
			if got := s.Shard(t.Context()).Terms; len(got) != 2 || got[0].Trigger != c.want || got[1].Trigger != "" {
				t.Errorf("%+v, want trigger %q", got, c.want)
			}
			if all[0].Trigger != c.recorded.Trigger {
				t.Errorf("what all share was changed: %+v", all)
			}
		})
	}
}
