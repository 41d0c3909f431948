package election_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// accepts is a replica's choice about succession without a fence.
func accepts(so bool) func(*election.Config) {
	return func(cfg *election.Config) { cfg.SucceedUnfenced = so }
}

// The holder's choice is on the Lease, and goes with the holder.
func TestTheChoiceToBeSucceededIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		for _, accept := range []bool{true, false} {
			r := start(t, store, nil, detectBy(network.join("a"), election.DetectCrash, false), accepts(accept))
			r.mustLead()
			if said := store.Lease().Annotations["regent.dev/presence"]; strings.Contains(said, `"succession":"on-refusal"`) != accept {
				t.Errorf("accepts: %v, the Lease says %s", accept, said)
			}
			r.stop()
			if said := store.Lease().Annotations["regent.dev/presence"]; strings.Contains(said, "succession") {
				t.Errorf("nobody holds the lease, and it says %s", said)
			}
		}
	})
}

// A holder that lives, and whose address refused connections, stops as soon as its watch tells it, or at its next
// renewal. Deaths that were none are then doubted, as with a fence.
func TestALivingHolderThatWasSucceededWithoutAFenceStopsSoon(t *testing.T) {
	for name, test := range map[string]struct {
		blind bool // its watch brings nothing
		most  time.Duration
	}{
		"its watch works":       {most: 0},
		"only its writes do so": {blind: true, most: retry},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				ofHolder, ofStandby := network.join("a"), network.join("b")
				holder := start(t, store, nil, detectBy(ofHolder, election.DetectCrash, false), accepts(true))
				holder.mustLead()
				standby := start(t, store, nil, detectBy(ofStandby, election.DetectCrash, false), accepts(true))
				time.Sleep(retry / 2)
				holder.client.HoldWatches(test.blind)
				ofHolder.seem(election.Dead) // and it lives
				at := time.Now()
				began := standby.mustLead().began
				time.Sleep(retry)
				if ended := holder.mustEnd(0, election.Deposed).ended; ended.Sub(began) > test.most {
					t.Errorf("both worked for %v, want %v at most", ended.Sub(began), test.most)
				}
				if took := began.Sub(at); took != 0 {
					t.Errorf("succeeded after %v", took)
				}
				holder.client.HoldWatches(false)
				ofHolder.seem(election.Alive)
				time.Sleep(retry) // the victim is heard again
				ofStandby.seem(election.Dead)
				at = time.Now()
				time.Sleep(lease)
				if again := holder.mustLead().began.Sub(at); again == 0 {
					t.Error("the next refusal was believed at once, although the last was no death")
				}
				standby.stop()
				holder.stop()
			})
		})
	}
}

func TestAChoiceWithoutEffectIsAnError(t *testing.T) {
	for name, change := range map[string]func(*election.Config){
		"Detector":  func(cfg *election.Config) { cfg.Detector = nil },
		"Detection": func(cfg *election.Config) { cfg.Detection = election.DetectOff },
		"Mode":      func(cfg *election.Config) { cfg.Mode = election.ForLife{} },
	} {
		cfg := newConfig(electiontest.NewStore(leaseName).Client())
		cfg.Detector, cfg.SucceedUnfenced = newNetwork().join("a"), true
		change(&cfg)
		if _, err := election.New(cfg); err == nil || !strings.Contains(err.Error(), "SucceedUnfenced") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
