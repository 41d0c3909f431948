package election

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Coordinated is the mode in which an electing controller chooses the holder, which then renews the lease as in mode
// Renewed. The controller chooses among the LeaseCandidates of live processes the one of the oldest version, so that a
// rolling upgrade changes the version once (KEP-4355). On a shard Regent's controller leasecandidate elects. On a
// Kubernetes cluster kube-apiserver does, if it has the feature CoordinatedLeaderElection. The mode needs
// Config.Candidates.
type Coordinated struct {
	// BinaryVersion and EmulationVersion are the versions of this process, such as 1.36.0. EmulationVersion must
	// not be newer than BinaryVersion.
	BinaryVersion, EmulationVersion string
}

// Name returns "coordinated".
func (Coordinated) Name() ModeName { return lease.Coordinated }

// Electing returns true.
func (Coordinated) Electing() bool { return true }

// Expires returns true.
func (Coordinated) Expires() bool { return true }

func (m Coordinated) kind() kind {
	return kind{
		name:       lease.Coordinated,
		electing:   true,
		objects:    true,
		patience:   5 * time.Second, // the electing controller waits as long for candidates that do not answer
		requests:   2,               // the LeaseCandidate is deleted, in up to two attempts
		unreleased: expiresUnreleased,
		standing: [3]string{
			"Cannot keep the LeaseCandidate of this replica: until it can, the electing controller does not choose this replica (it takes the verbs list, watch, create, update and delete on leasecandidates)",
			"The LeaseCandidate of this replica can be kept again", "candidate",
		},
		faults: m.faults,
		begin: func(e *Elector) mode {
			return &coordinated{candidacy: newCandidacy(e.cfg, m, e.self, &e.standing), next: e.identities.next}
		},
	}
}

// faults returns what is wrong with the versions.
func (m Coordinated) faults(_ Config, name func(string) string) []error {
	var faults []error
	parse := func(field, text string) *version.Version {
		v, err := version.ParseSemantic(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %q is not a version such as 1.36.0: %w", name(field), text, err))
		}
		return v
	}
	binary, emulated := parse("BinaryVersion", m.BinaryVersion), parse("EmulationVersion", m.EmulationVersion)
	if len(faults) == 0 && binary.LessThan(emulated) {
		faults = append(faults, fmt.Errorf("%s %s is newer than %s %s", name("EmulationVersion"), emulated, name("BinaryVersion"), binary))
	}
	return faults
}

// coordinated implements mode Coordinated for one call of Run. Its candidacy keeps the LeaseCandidate of this process.
type coordinated struct {
	*candidacy
	next     func() string // returns a new identity
	identity string        // the candidate's
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

// awaitWithdrawn keeps the lease held while the LeaseCandidate is there: after a release the electing controller would
// ask that candidate, and name it again.
func (c *coordinated) awaitWithdrawn() {
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case <-c.withdrawn():
	case <-timer.C:
	}
}

// deposed deletes the LeaseCandidate of the holder, which the electing controller would otherwise ask in vain for half
// a second. It comes after the holder was taken off the Lease. Nothing guards this deletion: if the news was old and
// the holder is well, the holder becomes a candidate again. Meanwhile the electing controller asks the others.
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
