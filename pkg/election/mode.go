package election

import (
	"context"
	"fmt"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Mode says what it takes to keep the lease: Renewed, Coordinated or ForLife.
type Mode interface {
	// Name is what the Lease says of the mode.
	Name() ModeName
	// Electing reports whether an electing controller names who holds the lease. Then nobody can prefer a replica to others.
	Electing() bool
	// kind describes the mode. It has no other implementations than this package's.
	kind() kind
}

// ModeName names a Mode. The Lease names its holder's, and keeps the name when it is free.
type ModeName = lease.Mode

// Modes are all modes, as zero values. Each has a file of its own.
var Modes = []Mode{Renewed{}, Coordinated{}, ForLife{}}

// ModeNamed returns the zero value of the mode of that name, and an error that lists all names if there is none.
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

// kind describes a mode.
type kind struct {
	name ModeName
	// electing: see Mode.Electing.
	electing bool
	// objects: holder identities are names of objects.
	objects bool
	// owned: an object that others delete stands for this process's life.
	owned bool
	// patience is for how much longer than others a lease of this mode that is free is left to the replicas of this mode.
	patience time.Duration
	// requests is how many requests more than in others it takes to end a term.
	requests int
	// unreleased is what becomes of a lease that a quarantined process does not release.
	unreleased string
	// faults are what contradicts the mode in a configuration, nil if nothing does: see Config.ValidateAs.
	faults func(cfg Config, name func(field string) string) []error
	// begin returns the mode for one call of Run. It starts nothing.
	begin func(*Elector) mode
}

// kindOf describes the mode of that name; it is zero for one that this program does not know.
func kindOf(name ModeName) kind {
	mode, err := ModeNamed(name)
	if err != nil {
		return kind{}
	}
	return mode.kind()
}

// mode is how an Elector holds the lease, for as long as one call of Run lasts. Run's goroutine calls all but run.
type mode interface {
	// run keeps what the mode needs beside the Lease, until ctx ends, and then takes it away.
	run(ctx context.Context)
	// candidate is a new identity under which this process stands for election until its next term has ended; empty: it stands for
	// none, and campaigns under an identity of that moment.
	candidate() string
	// nominate has that identity stand, or step back. It does not wait for that.
	nominate(nomination)
	// awaitWithdrawn returns when no candidate of this process is left, or after the time that a request may take.
	awaitWithdrawn()
	// deposed is told when this process has taken a holder off the Lease.
	deposed(ctx context.Context, seen lease.Observation)
	// unready is closed when it may have changed that no term can begin yet; nil if one can.
	unready() <-chan struct{}
	// enter makes one attempt to acquire the lease. On error nothing is left running.
	enter(ctx context.Context, h *heldLease) (claim, error)
}

// plain has the answers of a mode that needs nothing beside the Lease.
type plain struct{}

func (plain) run(context.Context)                        {}
func (plain) candidate() string                          { return "" }
func (plain) nominate(nomination)                        {}
func (plain) awaitWithdrawn()                            {}
func (plain) deposed(context.Context, lease.Observation) {}
func (plain) unready() <-chan struct{}                   { return nil }
