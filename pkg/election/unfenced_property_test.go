package election_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// A holder without a fence is succeeded early only if its address refuses connections, and both replicas have chosen to
// accept the risk. To be fenced is no such choice.
func TestAnUnfencedHolderIsSucceededEarlyOnlyIfBothAcceptTheRisk(t *testing.T) {
	type choice struct{ fenced, accepts bool }
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(who string) choice {
			return choice{rapid.Bool().Draw(rt, who+" is fenced"), rapid.Bool().Draw(rt, who+" accepts")}
		}
		holds, stands := choose("holder"), choose("standby")
		sign := rapid.SampledFrom([]election.Sign{election.NoSign, election.Silent, election.Dead}).Draw(rt, "sign")
		detection := election.DetectCrash
		if stands.fenced {
			detection = rapid.SampledFrom([]election.Detection{election.DetectCrash, election.DetectSuspect}).Draw(rt, "detection")
		}
		bothFenced, bothAccept := holds.fenced && stands.fenced, holds.accepts && stands.accepts
		early := sign == election.Dead && (bothFenced || bothAccept) || sign == election.Silent && bothFenced && detection == election.DetectSuspect
		var took time.Duration
		var warned bool
		synctest.Test(t, func(t *testing.T) {
			network, store := newNetwork(), electiontest.NewStore(leaseName)
			ofHolder := network.join("a")
			holder := start(t, store, nil, detectBy(ofHolder, election.DetectCrash, holds.fenced), accepts(holds.accepts))
			holder.mustLead()
			notices := make(chan election.Notice, 100)
			standby := start(t, store, nil, detectBy(network.join("b"), detection, stands.fenced), accepts(stands.accepts), func(cfg *election.Config) {
				cfg.Notify = func(n election.Notice) { notices <- n }
			})
			time.Sleep(retry / 2)
			cutOff(holder)
			ofHolder.seem(sign)
			at := time.Now()
			time.Sleep(lease)
			took = standby.mustLead().began.Sub(at)
			holder.client.Always(electiontest.Fault{})
			standby.stop()
			holder.stop()
			for len(notices) > 0 {
				n := <-notices
				warned = warned || n.Reason == election.Unproved && n.Warning && strings.Contains(n.Message, `"a_`)
			}
		})
		if (took == 0) != early || !early && took < lease-retry {
			rt.Errorf("leads after %v, want at once: %v", took, early)
		}
		if risk := early && !bothFenced; warned != risk {
			rt.Errorf("people were warned: %v, want %v", warned, risk)
		}
	})
}
