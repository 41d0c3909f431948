package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// An operator who reads that the leader's process is gone, and sees nothing follow, also reads why, and until when.
func TestAStandbyThatMayNotActSaysWhyAndUntilWhen(t *testing.T) {
	const neither = "neither refused (Fenced of both replicas) nor accepted (SucceedUnfenced of both)"
	for name, test := range map[string]struct {
		fenced    bool
		detection election.Detection
		sign      election.Sign
		want      string
	}{
		"gone, not fenced":           {false, election.DetectCrash, election.Dead, "is gone: its lease has to expire, because its late writes are " + neither},
		"silent, not fenced":         {false, election.DetectCrash, election.Silent, "is silent: its lease has to expire, because its late writes are not refused (Fenced of both replicas)"},
		"silent, which is no reason": {true, election.DetectCrash, election.Silent, "is silent: its lease has to expire, because this replica acts on a crash only (Detection)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				ofLeader := network.join("a")
				leader := start(t, store, nil, detectBy(ofLeader, test.detection, test.fenced))
				leader.mustLead()
				standby := startLogged(t, store, nil, detectBy(network.join("b"), test.detection, test.fenced))
				time.Sleep(retry / 2)
				leader.client.Always(electiontest.Fault{Hang: true})
				ofLeader.seem(test.sign)
				time.Sleep(moment)
				until := store.Lease().Spec.RenewTime.Add(lease).UTC().Format(time.RFC3339)
				if lines := standby.log.with("Waiting although the leader's process "+test.want, until); len(lines) != 1 {
					t.Errorf("it should say once that it waits until %s: %q", until, standby.log.with(""))
				}
				time.Sleep(lease)
				standby.mustLead()
				if lines := standby.log.with("Waiting although"); len(lines) != 1 {
					t.Errorf("it says %q", lines)
				}
				leader.client.Always(electiontest.Fault{})
				standby.stop()
				leader.stop()
			})
		})
	}
}

// The Detector says in the log what contact with the leader is good for.
func TestADetectorKnowsWhetherACrashIsWaitedOut(t *testing.T) {
	risks := func(cfg *election.Config) { cfg.SucceedUnfenced = true }
	for name, test := range map[string]struct {
		leader, standby func(*election.Config) // nil: neither fenced nor SucceedUnfenced
		fenced          bool
		waits           bool
	}{
		"neither":              {waits: true},
		"the leader risks it":  {leader: risks, waits: true},
		"the standby risks it": {standby: risks, waits: true},
		"both risk it":         {leader: risks, standby: risks},
		"both are fenced":      {fenced: true},
		"it leads for life":    {leader: func(cfg *election.Config) { cfg.Mode = election.ForLife{} }, standby: func(cfg *election.Config) { cfg.Mode = election.ForLife{} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				ofStandby := network.join("b")
				change := func(some func(*election.Config)) func(*election.Config) {
					if some == nil {
						return func(*election.Config) {}
					}
					return some
				}
				leader := start(t, store, nil, detectBy(network.join("a"), election.DetectCrash, test.fenced), change(test.leader))
				leader.mustLead()
				standby := start(t, store, nil, detectBy(ofStandby, election.DetectCrash, test.fenced), change(test.standby))
				time.Sleep(moment)
				ofStandby.mu.Lock()
				if ofStandby.waits != test.waits {
					t.Errorf("it waits: %t", ofStandby.waits)
				}
				ofStandby.mu.Unlock()
				standby.stop()
				leader.stop()
			})
		})
	}
}

func TestAStandbySaysThatSuspicionsAreDamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		store.Fence()
		ofA, ofB := network.join("a"), network.join("b")
		first := startLogged(t, store, nil, detectBy(ofA, election.DetectSuspect, true))
		first.mustLead()
		second := start(t, store, nil, detectBy(ofB, election.DetectSuspect, true))
		time.Sleep(retry / 2)
		ofA.seem(election.Silent)
		second.mustLead()
		began := time.Now()
		time.Sleep(moment)
		ofB.seem(election.Silent)
		time.Sleep(moment)
		if lines := first.log.with("Waiting although the leader's process is silent: terms of late began on such a sign", `"until"=`); len(lines) != 1 {
			t.Errorf("it should say once that it waits: %q", first.log.with(""))
		}
		time.Sleep(5 * time.Second)
		if took := first.mustLead().began.Sub(began); took > 5*time.Second {
			t.Errorf("it leads after %v", took)
		}
		second.stop()
		first.stop()
	})
}
