package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// What a follower says names the term that it is about. Of another's it is late, and ends nothing.
func TestAnAnswerAboutAnotherTermEndsNone(t *testing.T) {
	for of, ends := range map[string]bool{"another": false, "this": true} {
		t.Run("of "+of+" term", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCouple(t, election.DetectCrash, true, nil)
				cutOff(c.standby) // it answers nothing itself
				c.silenceLeader()
				history := c.store.History()
				renewed := history[len(history)-1].At
				time.Sleep(time.Until(renewed.Add(retry + renew/3 + moment))) // until a renewal has failed
				says := election.Confirmation{Standby: election.Standby{Replica: "b", Mode: election.ModeLease}, Holder: "host_of-another-term"}
				if ends {
					says.Holder = c.store.Holder()
				}
				c.ofLeader.confirmations <- says
				time.Sleep(renew/3 + moment) // before its deadline
				if end := c.leader.all()[0].ended; end.IsZero() == ends {
					t.Errorf("the term's end is %v", end)
				}
				c.standby.client.Always(electiontest.Fault{})
				c.stop()
			})
		})
	}
}
