package election

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Coordinated is the mode in which the holder renews, as in Renewed, but was named by an electing controller, from the LeaseCandidates
// of the processes that live: the one of the oldest version, so that a roll changes the version once (KEP-4355). Something must elect:
// leasecandidate on a shard, kube-apiserver on a Kubernetes cluster that has the feature CoordinatedLeaderElection. It needs
// Config.Candidates.
type Coordinated struct {
	// BinaryVersion and EmulationVersion are this process's, as semantic versions. The emulation version must not be the newer one.
	BinaryVersion, EmulationVersion string
}

// Name returns "coordinated".
func (Coordinated) Name() ModeName { return lease.Coordinated }

// Electing returns true.
func (Coordinated) Electing() bool { return true }

func (m Coordinated) kind() kind {
	return kind{
		name:       lease.Coordinated,
		electing:   true,
		objects:    true,
		patience:   5 * time.Second, // whoever elects waits as long for candidates that do not answer
		requests:   2,               // its candidate is deleted, tried twice
		unreleased: expiresUnreleased,
		faults:     m.faults,
		begin: func(e *Elector) mode {
			return &coordinated{candidacy: newCandidacy(e.cfg, m, e.presence), next: e.identities.next}
		},
	}
}

// faults are those of its versions.
func (m Coordinated) faults(_ Config, name func(string) string) []error {
	var faults []error
	parse := func(field, text string) *version.Version {
		v, err := version.ParseSemantic(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %q is no version such as 1.36.0: %w", name(field), text, err))
		}
		return v
	}
	binary, emulated := parse("BinaryVersion", m.BinaryVersion), parse("EmulationVersion", m.EmulationVersion)
	if len(faults) == 0 && binary.LessThan(emulated) {
		faults = append(faults, fmt.Errorf("%s %s is newer than %s %s", name("EmulationVersion"), emulated, name("BinaryVersion"), binary))
	}
	return faults
}

// coordinated is Coordinated, for one call of Run. Its candidacy nominates this process.
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
	if seen.Mode == lease.Coordinated {
		c.withdraw(ctx, seen.Holder())
	}
}

func (c *coordinated) unready() <-chan struct{} { return nil }

func (c *coordinated) enter(ctx context.Context, h *heldLease) (claim, error) {
	return enterRunOrDie(ctx, &lock{heldLease: h, named: true})
}

var _ mode = (*coordinated)(nil)
