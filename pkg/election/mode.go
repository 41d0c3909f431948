package election

import (
	"context"
	"fmt"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Mode says what it takes to keep the lease. Its implementations are Renewed, Coordinated, ForLife and ByPresence.
type Mode interface {
	// Name returns the mode's name, as the Lease shows it.
	Name() ModeName
	// Electing reports whether an electing controller chooses the holder. If so, replicas cannot have priorities,
	// and a step down cannot name a successor.
	Electing() bool
	// Expires reports whether the lease expires unless its holder renews it. If it does not, a holder that falls
	// silent is waited for.
	Expires() bool
	// kind returns the mode's properties. Only this package implements it.
	kind() kind
}

// ModeName is the name of a Mode, a string: "lease" for Renewed, "coordinated" for Coordinated, "for-life" for ForLife,
// and "by-presence" for ByPresence. The Lease carries the name of its holder's mode, and keeps it while the lease is
// free. ModeNamed returns the mode of a name.
type ModeName = lease.ModeName

// Modes are all modes, as zero values.
var Modes = []Mode{Renewed{}, Coordinated{}, ForLife{}, ByPresence{}}

// ModeNamed returns the zero value of the mode of that name. If there is none, the error lists all names.
func ModeNamed(name ModeName) (Mode, error) {
	names := make([]ModeName, 0, len(Modes))
	for _, mode := range Modes {
		if mode.Name() == name {
			return mode, nil
		}
		names = append(names, mode.Name())
	}
	return nil, fmt.Errorf("%q must be one of %q", name, names)
}

// kind has the properties of a mode.
type kind struct {
	name ModeName
	// electing is what Mode.Electing returns.
	electing bool
	// objects says that holder identities must be valid names of objects.
	objects bool
	// unsuspected says that no holder is succeeded on a suspicion.
	unsuspected bool
	// owned says that the owner object of this process's leases is one that others delete, such as its Pod.
	owned bool
	// patience is how much longer replicas of other modes wait before they take a free lease of this mode.
	patience time.Duration
	// requests is how many requests the end of a term takes, beyond those of mode Renewed.
	requests int
	// unreleased tells people what happens to the lease of a quarantined process.
	unreleased string
	// standing is what people are told when the object with which a process stands for election cannot be kept, and
	// can be again, and the key of its name in the log.
	standing [3]string
	// faults returns which fields of a Config contradict the mode, named as in Config.ValidateAs. Nil: none can.
	faults func(cfg Config, name func(field string) string) []error
	// presence returns the Presence that keeps the leases of an Elector of that Config. Nil: none does.
	presence func(Config) (*Presence, error)
	// begin returns the mode for one call of Run. It starts no goroutine.
	begin func(*Elector) mode
}

// kindOf returns the properties of the mode of that name. They are zero if this program does not know the mode.
func kindOf(name ModeName) kind {
	mode, err := ModeNamed(name)
	if err != nil {
		return kind{}
	}
	return mode.kind()
}

// mode acquires and keeps the lease during one call of Run. Run's own goroutine calls every method but run.
type mode interface {
	// run keeps the objects that the mode needs beside the Lease until ctx ends, and then deletes them.
	run(ctx context.Context)
	// candidate returns a new identity for the next candidacy and the term that follows it. Empty: the mode has no
	// candidates, and each campaign makes its own identity.
	candidate() string
	// nominate makes this process a candidate under that identity, or withdraws the candidate. It does not wait
	// until this is done.
	nominate(nomination)
	// awaitWithdrawn waits until this process has no candidate any more, but no longer than for one request.
	awaitWithdrawn()
	// deposed is called after this process has taken the holder that it saw off the Lease.
	deposed(ctx context.Context, seen lease.Observation)
	// unready returns nil if a term can begin. Otherwise none can begin yet, and the channel is closed when to ask
	// again.
	unready() <-chan struct{}
	// enter makes one attempt to acquire the lease. If it fails, nothing that it started is left running.
	enter(ctx context.Context, h *heldLease) (claim, error)
}

// plain implements the optional methods of a mode that needs nothing beside the Lease.
type plain struct{}

func (plain) run(context.Context)                        {}
func (plain) candidate() string                          { return "" }
func (plain) nominate(nomination)                        {}
func (plain) awaitWithdrawn()                            {}
func (plain) deposed(context.Context, lease.Observation) {}
func (plain) unready() <-chan struct{}                   { return nil }
