package election_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// crew are the replicas of one store that see each other.
type crew struct {
	store    *electiontest.Store
	peers    []*peer
	replicas []*replica
}

func newCrew(t *testing.T, mode election.Mode, n int) *crew {
	t.Helper()
	c, network := &crew{store: electiontest.NewStore(leaseName)}, newNetwork()
	c.store.Fence()
	for i := range n {
		p := network.join(fmt.Sprint(i))
		c.peers = append(c.peers, p)
		c.replicas = append(c.replicas, start(t, c.store, nil, detectBy(p, election.DetectCrash, true), func(cfg *election.Config) { cfg.Mode = mode }))
		time.Sleep(retry)
	}
	return c
}

func (c *crew) stop() {
	for _, r := range c.replicas {
		r.client.Always(electiontest.Fault{})
		r.stop()
	}
}

// leader returns the index of the leader; -1 if there is none.
func (c *crew) leader() int {
	return slices.IndexFunc(c.replicas, func(r *replica) bool { _, leads := r.leading(); return leads })
}

// began returns when each term so far began, in order.
func (c *crew) beginnings() (all []time.Time) {
	for _, r := range c.replicas {
		for _, term := range r.all() {
			all = append(all, term.began)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// flap makes the current leader's address refuse connections for a moment, once per period, for that long.
func (c *crew) flap(period, during time.Duration) {
	const refused = 150 * time.Millisecond
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(period - refused) {
		i := c.leader()
		if i < 0 {
			time.Sleep(refused)
			continue
		}
		c.peers[i].seem(election.Dead)
		time.Sleep(refused)
		c.peers[i].seem(election.Alive)
	}
}

// A firewall or proxy that refuses connections now and then makes each leader look dead. The replicas do not take turns
// at being deposed.
func TestDeathsWhoseVictimsAreHeardAgainAreDamped(t *testing.T) {
	for _, mode := range []election.Mode{election.Renewed{}, election.Coordinated{}} {
		for _, n := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", mode.Name(), n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCrew(t, mode, n)
					defer c.stop()
					before := len(c.beginnings())
					c.flap(3*time.Second, 24*time.Second)
					if terms := len(c.beginnings()) - before; terms < 1 || terms > 3 {
						t.Errorf("%d changes of the leader in 24 s", terms)
					}
					c.flap(3*time.Second, 20*time.Minute)
					began := c.beginnings()[before:]
					// The standby acts on the first death at once. Like each later one it counts as
					// a suspicion.
					for i, want := 1, 5*time.Second; i < len(began); i, want = i+1, min(2*want, time.Minute) {
						if lasted := began[i].Sub(began[i-1]); lasted < want {
							t.Errorf("term %d lasted %v, want %v", i, lasted, want)
						}
					}
					if terms := len(began); terms > 26 {
						t.Errorf("%d terms in 20 minutes", terms)
					}
				})
			})
		}
	}
}

// kill stops the leader's writes and makes it dead to the others. It returns how long nobody leads.
func (c *crew) kill(t *testing.T) time.Duration {
	t.Helper()
	i := c.leader()
	if i < 0 {
		t.Fatal("nobody leads")
	}
	c.replicas[i].client.Always(electiontest.Fault{Hang: true})
	at := time.Now()
	c.peers[i].die()
	for time.Since(at) < 2*lease {
		for j := range c.replicas {
			if _, leads := c.replicas[j].leading(); leads && j != i {
				return time.Since(at)
			}
		}
		time.Sleep(moment / 10)
	}
	t.Fatal("nobody leads after two lease durations")
	return 0
}

// However many leaders die one after the other, a standby takes over from each at once, because none of them is heard
// again.
func TestDeathsThatAreTrueAreFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, election.Renewed{}, 5)
		for range 4 {
			if took := c.kill(t); took > moment {
				t.Errorf("nobody leads for %v", took)
			}
			time.Sleep(retry + moment)
		}
		c.stop()
	})
}

// If a leader dies while deaths are doubted, the takeover waits for the rest of the pause. After calm it waits no more.
func TestADeathIsDoubtedForATimeAfterAFalseOne(t *testing.T) {
	for name, test := range map[string]struct {
		calm     time.Duration
		at, most time.Duration
	}{
		"soon":       {calm: time.Second, at: 2500 * time.Millisecond, most: 3500 * time.Millisecond},
		"after calm": {calm: 2 * time.Minute, most: moment},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, election.Renewed{}, 3)
				defer c.stop()
				c.flap(time.Second, time.Second)
				time.Sleep(test.calm)
				if took := c.kill(t); took < test.at || took > test.most {
					t.Errorf("nobody leads for %v, want %v to %v", took, test.at, test.most)
				}
			})
		})
	}
}
