package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// A store may fail everybody for a while, for example while etcd elects its leader or an API server restarts. A
// follower can then write no sooner than the leader, whose next attempt succeeds.
func TestWhatEverybodySuffersEndsNoTermIfItIsOverInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fault, longest := electiontest.Fault{Hang: true}, 2500
		switch rapid.SampledFrom([]string{"hangs", "answers nothing", "refuses"}).Draw(rt, "how") {
		case "answers nothing": // and makes what it is asked for
			fault = electiontest.Fault{LoseReply: true}
		case "refuses":
			fault, longest = electiontest.Fault{Err: errRefused}, 5500
		}
		after := time.Duration(rapid.IntRange(0, 1999).Draw(rt, "after ms")) * time.Millisecond
		lasts := time.Duration(rapid.IntRange(1, longest).Draw(rt, "lasts ms")) * time.Millisecond
		slow := func(what string) electiontest.Fault {
			return electiontest.Fault{AnswerDelay: time.Duration(rapid.IntRange(1, 50).Draw(rt, what)) * time.Millisecond}
		}
		ofLeader, ofStandby := slow("leader's ms"), slow("standby's ms")
		var cause error
		synctest.Test(t, func(t *testing.T) {
			c := newCouple(t, election.DetectCrash, true, nil)
			defer c.stop()
			time.Sleep(after)
			for _, client := range []*electiontest.Client{c.leader.client, c.standby.client} {
				client.Always(fault)
			}
			time.Sleep(lasts)
			c.leader.client.Always(ofLeader)
			c.standby.client.Always(ofStandby)
			time.Sleep(2 * lease)
			for _, term := range c.leader.all() {
				if !term.ended.IsZero() {
					cause = term.cause
				}
			}
		})
		if cause != nil {
			rt.Fatalf("the term ended: %v", cause)
		}
	})
}
