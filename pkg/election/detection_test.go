package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// detectBy gives a replica a Detector by which others see it, and makes it act on what it sees.
func detectBy(peer *peer, mode election.Detection, fenced bool) func(*election.Config) {
	return func(cfg *election.Config) {
		cfg.Detector, cfg.Detection, cfg.Fenced = peer, mode, fenced
		cfg.Replica = peer.Contact().Address
	}
}

// couple is a leader and a standby that see each other.
type couple struct {
	store            *electiontest.Store
	leader, standby  *replica
	ofLeader, ofHeir *peer
}

func newCouple(t *testing.T, mode election.Detection, fenced bool, leads election.LeadFunc) *couple {
	t.Helper()
	network := newNetwork()
	c := &couple{store: electiontest.NewStore(leaseName), ofLeader: network.join("a"), ofHeir: network.join("b")}
	if fenced {
		c.store.Fence()
	}
	c.leader = start(t, c.store, leads, detectBy(c.ofLeader, mode, fenced))
	c.leader.mustLead()
	c.standby = start(t, c.store, nil, detectBy(c.ofHeir, mode, fenced))
	time.Sleep(retry / 2)
	return c
}

// silenceLeader makes the leader hang: it neither writes nor reads.
func (c *couple) silenceLeader() { c.leader.client.Always(electiontest.Fault{Hang: true}) }

func (c *couple) stop() {
	c.leader.client.Always(electiontest.Fault{})
	c.standby.stop()
	c.leader.stop()
}

// A leader that hangs or is cut off may write later. Another may lead before its lease expires only if both are fenced:
// the server refuses the old leader's writes, and the other's server is the one that refuses them.
func TestOnWhichSignsALeaseIsTakenBeforeItExpires(t *testing.T) {
	for name, test := range map[string]struct {
		mode            election.Detection
		holder, standby bool // fenced
		sign            election.Sign
		early           bool
	}{
		"dead":                          {election.DetectCrash, true, true, election.Dead, true},
		"dead, mode not given":          {"", true, true, election.Dead, true},
		"silent, mode not given":        {"", true, true, election.Silent, true},
		"dead, and nobody wants to see": {election.DetectOff, true, true, election.Dead, false},
		"silent":                        {election.DetectCrash, true, true, election.Silent, false},
		"silent, and that is enough":    {election.DetectSuspect, true, true, election.Silent, true},
		"dead, silence would be enough": {election.DetectSuspect, true, true, election.Dead, true},
		"no sign":                       {election.DetectSuspect, true, true, election.NoSign, false},
		"dead, neither is fenced":       {election.DetectCrash, false, false, election.Dead, false},
		"dead, the holder is not":       {election.DetectCrash, false, true, election.Dead, false},
		"dead, the standby is not":      {election.DetectCrash, true, false, election.Dead, false},
		"silence would be enough, but the holder is not fenced": {election.DetectSuspect, false, true, election.Dead, false},
		"silent, the holder is not fenced":                      {election.DetectSuspect, false, true, election.Silent, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				ofHolder := network.join("a")
				holder := start(t, store, nil, detectBy(ofHolder, election.DetectCrash, test.holder))
				holder.mustLead()
				standby := start(t, store, nil, detectBy(network.join("b"), test.mode, test.standby))
				time.Sleep(retry / 2)
				cutOff(holder)
				ofHolder.seem(test.sign)
				at := time.Now()
				time.Sleep(lease)
				took := standby.mustLead().began.Sub(at)
				if early := took == 0; early != test.early {
					t.Errorf("leads after %v", took)
				}
				if !test.early && (took < lease-retry || took > lease) {
					t.Errorf("leads after %v, and the lease lasts %v", took, lease)
				}
				holder.client.Always(electiontest.Fault{})
				standby.stop()
				holder.stop()
			})
		})
	}
}

// Silence is enough by default only where it is safe. Whoever holds the lease for life is succeeded on no suspicion.
func TestTheDefaultDetectionIsTheFastestThatIsSafe(t *testing.T) {
	for name, test := range map[string]struct {
		fenced bool
		mode   election.Mode
		want   election.Detection
	}{
		"fenced":              {true, nil, election.DetectSuspect},
		"fenced, coordinated": {true, election.Coordinated{}, election.DetectSuspect},
		"fenced, for life":    {true, election.ForLife{}, election.DetectCrash},
		"not fenced":          {false, nil, election.DetectCrash},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := election.DefaultConfig()
			cfg.Fenced, cfg.Mode = test.fenced, test.mode
			if got := cfg.EffectiveDetection(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestSuspicionNeedsTheFence(t *testing.T) {
	cfg := newConfig(electiontest.NewStore(leaseName).Client())
	cfg.Detection = election.DetectSuspect
	if _, err := election.New(cfg); err == nil {
		t.Error("a leader that may write on can be succeeded on a suspicion")
	}
}

func TestADeathIsFollowedByOneWriteOfEachStandbyAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		store.Fence()
		dying := network.join("a")
		leader := start(t, store, nil, detectBy(dying, election.DetectCrash, true))
		leader.mustLead()
		var standbys []*replica
		for i := range 10 {
			standbys = append(standbys, start(t, store, nil, detectBy(network.join(fmt.Sprint(i)), election.DetectCrash, true)))
		}
		time.Sleep(retry / 2)
		leader.client.Always(electiontest.Fault{Hang: true})
		dying.seem(election.Dead)
		time.Sleep(moment)
		led, writes := 0, 0
		for _, r := range standbys {
			led += len(r.all())
			writes += r.client.Count(electiontest.Update)
		}
		if led != 1 || writes > len(standbys) {
			t.Errorf("%d standbys led, after %d writes", led, writes)
		}
		for _, r := range standbys {
			r.stop()
		}
		leader.client.Always(electiontest.Fault{})
		leader.stop()
	})
}

func TestAQuarantinedReplicaDoesNotOfferToSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := make(chan struct{})
		c := newCouple(t, election.DetectSuspect, true, func(ctx context.Context, _ election.Term) error {
			<-ctx.Done()
			<-freed
			return nil
		})
		if _, err := c.leader.elector.StepDown("try", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(drain + lease)
		c.standby.mustLead() // the lease had to expire
		c.standby.client.Always(electiontest.Fault{Hang: true})
		time.Sleep(renew - retry)
		if _, leads := c.standby.leading(); !leads {
			t.Errorf("it stepped aside for a replica that is quarantined: %v", c.standby.all())
		}
		close(freed)
		c.standby.client.Always(electiontest.Fault{})
		c.stop()
	})
}

func TestAPreferredStandbyGetsAHeadStart(t *testing.T) {
	for name, test := range map[string]struct {
		dead bool
		want string
		took time.Duration
	}{
		"it leads":                  {want: "c"},
		"another, if it never does": {dead: true, want: "b", took: retry / 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, store := newNetwork(), electiontest.NewStore(leaseName)
				replicas := map[string]*replica{}
				for _, replica := range []string{"a", "b", "c"} {
					replicas[replica] = start(t, store, nil, detectBy(network.join(replica), election.DetectCrash, true))
					time.Sleep(moment)
				}
				if test.dead {
					replicas["c"].client.Always(electiontest.Fault{Err: errRefused})
				}
				asked := time.Now()
				if _, err := replicas["a"].elector.StepDown("try", "c"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.took)
				leads := replicas[test.want].mustLead()
				if took := leads.began.Sub(asked); took != test.took {
					t.Errorf("leads after %v, want %v", took, test.took)
				}
				replicas["c"].client.Always(electiontest.Fault{})
				for _, r := range replicas {
					r.stop()
				}
			})
		})
	}
}

func TestAStepDownInFavourOfNobodyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectCrash, true, nil)
		defer c.stop()
		if _, err := c.leader.elector.StepDown("try", "nobody"); !errors.Is(err, election.ErrNoStandby) {
			t.Errorf("in favour of nobody: %v", err)
		}
		if term, err := c.leader.elector.StepDown("try", "a"); !errors.Is(err, election.ErrLeadsAlready) || term.Epoch() != 1 {
			t.Errorf("in favour of the leader: epoch %d, %v", term.Epoch(), err)
		}
		if _, leads := c.leader.leading(); !leads {
			t.Error("the term ended")
		}
		if followers := c.ofLeader.Followers(); len(followers) != 1 || followers[0].Replica != "b" {
			t.Errorf("followed by %q", followers)
		}
	})
}

// Two replicas that always seem silent to each other take the lease from each other ever more seldom, and stop once
// they hear each other.
func TestSuspicionsAreDamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectSuspect, true, nil)
		defer c.stop()
		for _, p := range []*peer{c.ofLeader, c.ofHeir} {
			p.seem(election.Silent)
		}
		const watched = 20 * time.Minute
		time.Sleep(watched)
		var began []time.Time
		for _, r := range []*replica{c.leader, c.standby} {
			for _, term := range r.all() {
				began = append(began, term.began)
			}
		}
		slices.SortFunc(began, time.Time.Compare)
		// The standby acts on the first suspicion at once. Then terms last 5 s, 10 s, 20 s, 40 s, and a minute
		// each.
		for i, want := 2, 5*time.Second; i < len(began); i, want = i+1, min(2*want, time.Minute) {
			if lasted := began[i].Sub(began[i-1]); lasted < want || lasted > want+moment {
				t.Errorf("term %d lasted %v, want %v", i, lasted, want)
			}
		}
		if n := len(began); n < 20 || n > 26 {
			t.Errorf("%d terms in %v", n, watched)
		}
		for _, p := range []*peer{c.ofLeader, c.ofHeir} {
			p.seem(election.Alive)
		}
		time.Sleep(2*time.Minute + moment)
		terms := len(c.leader.all()) + len(c.standby.all())
		if terms > len(began)+1 {
			t.Errorf("%d terms began after both were heard again", terms-len(began))
		}
		// After calm the count is forgotten: the standby acts on the next suspicion at once.
		leader, standby, ofLeader := c.leader, c.standby, c.ofLeader
		if _, leads := leader.leading(); !leads {
			leader, standby, ofLeader = c.standby, c.leader, c.ofHeir
		}
		leader.client.Always(electiontest.Fault{Hang: true})
		defer leader.client.Always(electiontest.Fault{})
		ofLeader.seem(election.Silent)
		at := time.Now()
		if took := standby.mustLead().began.Sub(at); took != 0 {
			t.Errorf("leads after %v", took)
		}
	})
}

func TestATakeoverTellsItsPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectSuspect, true, nil)
		defer c.stop()
		c.standby.client.Next(electiontest.Update, electiontest.Fault{Delay: 30 * time.Millisecond})
		c.silenceLeader()
		c.ofLeader.seem(election.Dead)
		at := time.Now()
		took := c.standby.mustLead().Takeover()
		if took.Trigger != election.TriggerDeath || !took.Symptom.Equal(at) || !took.Decided.Equal(at) || !took.Sent.Equal(at) || took.Acquired.Sub(at) != 30*time.Millisecond {
			t.Errorf("a death at %v: %+v", at, took)
		}
	})
}

// When Run is called again, it does not use what the last call knew of the leader.
func TestANewRunKnowsNothingOfTheLeaderUntilItHearsOfIt(t *testing.T) {
	// the view brings the Lease before the Detector can have brought anything; who is first is not told
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := newCouple(t, election.DetectSuspect, true, nil)
			defer c.stop()
			c.standby.client.Always(electiontest.Fault{Err: errRefused})
			c.ofLeader.seem(election.Silent)
			time.Sleep(moment)
			c.standby.stop()
			c.ofLeader.seem(election.Alive)
			c.standby.client.Always(electiontest.Fault{})
			c.standby.run(nil)
			time.Sleep(moment)
			if terms := c.standby.all(); len(terms) > 0 {
				t.Errorf("it succeeded a leader that lives: %v", terms)
			}
		})
	}
}

// After a calm term earlier suspicions are forgotten, however the term ended.
func TestSuspicionsAreForgottenAfterACalmTermThatWasReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t, election.DetectSuspect, true, nil)
		defer c.stop()
		both := []*peer{c.ofLeader, c.ofHeir}
		for _, p := range both {
			p.seem(election.Silent)
		}
		time.Sleep(5 * time.Minute)
		for _, p := range both {
			p.seem(election.Alive)
		}
		time.Sleep(3 * time.Minute)
		leader, heir, ofHeir := c.leader, c.standby, c.ofHeir
		if _, leads := leader.leading(); !leads {
			leader, heir, ofHeir = heir, leader, c.ofLeader
		}
		if _, err := leader.elector.StepDown("try", ""); err != nil {
			t.Fatal(err)
		}
		heir.mustLead()
		time.Sleep(2 * retry)
		heir.client.Always(electiontest.Fault{Hang: true})
		defer heir.client.Always(electiontest.Fault{})
		ofHeir.seem(election.Silent)
		at := time.Now()
		time.Sleep(moment)
		if leads, ok := leader.leading(); !ok || leads.began != at {
			t.Errorf("a leader that hangs is not succeeded at once: %v", leader.all())
		}
	})
}
