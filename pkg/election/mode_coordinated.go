package election

import (
	"context"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

var coordinatedKind = kind{
	name:       ModeCoordinated,
	elects:     true,
	objects:    true,
	patience:   5 * time.Second, // whoever elects waits as long for candidates that do not answer
	requests:   2,               // its candidate is deleted, tried twice
	unreleased: renewingKind.unreleased,
	complete: func(cfg *Config) error {
		cfg.Owner = nil
		if !cfg.Enabled {
			return nil
		}
		return checkCandidate(*cfg)
	},
	begin: func(e *Elector) mode {
		return &coordinated{candidacy: newCandidacy(e.cfg, e.presence), next: e.identities.next}
	},
}

// coordinated is mode coordinated: an electing controller names the holder, which renews. Its candidacy nominates this process.
type coordinated struct {
	*candidacy
	next     func() string // a new identity
	identity string        // of the candidate
}

func (c *coordinated) candidate() string {
	c.identity = c.next()
	return c.identity
}

func (c *coordinated) nominate(n nomination) {
	switch n {
	case stand:
		c.stand(c.identity)
	case stepBack:
		c.stand("")
	}
}

// awaitWithdrawn: whoever elects would ask a candidate that is left when the lease is released, and it would be named again.
func (c *coordinated) awaitWithdrawn() {
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case <-c.left():
	case <-timer.C:
	}
}

// deposed takes the holder's candidate away, which would be asked in vain, for half a second. It comes after the holder was taken off:
// nothing guards that deletion, and what was judged may be late news of a leader that is well, which then stands again. Whoever elects
// asks the others meanwhile.
func (c *coordinated) deposed(ctx context.Context, seen lease.Observation) {
	if seen.Mode == ModeCoordinated {
		c.withdraw(ctx, seen.Holder())
	}
}

func (c *coordinated) unready() <-chan struct{} { return nil }

func (c *coordinated) enter(ctx context.Context, h *heldLease) (claim, error) {
	return enterRunOrDie(ctx, &lock{heldLease: h, named: true})
}

var _ mode = (*coordinated)(nil)
