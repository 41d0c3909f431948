package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// Who hangs, or is cut off, may write on. To lead before its lease has expired is safe only if both sides are fenced: its writes
// are refused once another leads, and the other's server is the one that refuses them.
func TestNoSignIsEnoughUnlessHolderAndStandbyAreFenced(t *testing.T) {
	for name, test := range map[string]struct {
		holder, standby bool // fenced
		detection       election.Detection
		sign            election.Sign
		early           bool
	}{
		"silent, the holder is not":  {false, true, election.DetectSuspect, election.Silent, false},
		"dead, the holder is not":    {false, true, election.DetectSuspect, election.Dead, false},
		"gone, the holder is not":    {false, true, election.DetectCrash, election.Dead, false},
		"gone, the standby is not":   {true, false, election.DetectCrash, election.Dead, false},
		"silent, both are":           {true, true, election.DetectSuspect, election.Silent, true},
		"gone, both are":             {true, true, election.DetectCrash, election.Dead, true},
		"silent, but to be believed": {true, true, election.DetectCrash, election.Silent, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				ofHolder := network.join("a")
				holder := start(t, store, nil, seen(ofHolder, election.DetectCrash, test.holder))
				holder.mustLead()
				standby := start(t, store, nil, seen(network.join("b"), test.detection, test.standby))
				time.Sleep(retry / 2)
				cutOff(holder)
				ofHolder.seem(test.sign)
				at := time.Now()
				time.Sleep(lease)
				took := standby.mustLead().began.Sub(at)
				if early := took == 0; early != test.early {
					t.Errorf("leads %v after the sign", took)
				}
				if !test.early && took < lease-retry {
					t.Errorf("leads %v after the sign, before a lease of %v has expired", took, lease)
				}
				holder.client.Always(electiontest.Fault{})
				standby.stop()
				holder.stop()
			})
		})
	}
}
