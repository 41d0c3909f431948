package election_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// assignment says to whom a lease is assigned.
type assignment struct {
	mu      sync.Mutex
	to      string
	changed chan struct{}
}

func (a *assignment) get() (string, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to, a.changed
}

func (a *assignment) set(to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = to
	close(a.changed)
	a.changed = make(chan struct{})
}

// A free lease is left to whom it is assigned to, for a moment. Whoever gets it assigned meanwhile need not wait any
// more.
func TestAFreeLeaseIsTakenAtOnceByWhomItIsAssignedTo(t *testing.T) {
	for name, test := range map[string]struct {
		first, then string
		took        time.Duration
	}{
		"it is":                  {first: "a_1", took: 0},
		"nobody is":              {first: "", took: 0},
		"another, who is dead":   {first: "b_1", took: retry / 4},
		"another, until it goes": {first: "b_1", then: "a_1", took: moment},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assigned := &assignment{to: test.first, changed: make(chan struct{})}
				began := time.Now()
				r := start(t, electiontest.NewStore(leaseName), nil, func(cfg *election.Config) { cfg.Instance, cfg.Assigned = "a_1", assigned.get })
				if test.then != "" {
					time.Sleep(moment)
					assigned.set(test.then)
				}
				time.Sleep(retry)
				if took := r.mustLead().began.Sub(began); took != test.took {
					t.Errorf("leads after %v, want %v", took, test.took)
				}
				r.stop()
			})
		})
	}
}

// listener counts how often it is asked for what others confirm.
type listener struct {
	*peer
	asked atomic.Int32
}

func (l *listener) Confirmations() <-chan election.Confirmation {
	l.asked.Add(1)
	return l.peer.Confirmations()
}

// What others confirm says whether the presence can be renewed. If the terms took it, the presence would not hear it.
func TestThePresenceAloneHearsWhatOthersConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{peer: newNetwork().join("a")}
		p := startParty(t, electiontest.NewStore(leaseName), leaseNames(3), nil, func(cfg *election.Config) { cfg.Detector = l })
		time.Sleep(moment)
		if asked := l.asked.Load(); p.leading() != 3 || asked != 1 {
			t.Errorf("leads under %d leases, and %d terms listen", p.leading(), asked)
		}
		p.stop()
	})
}
