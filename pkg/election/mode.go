package election

import (
	"context"
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Mode says what it takes to keep the lease. The Lease names its holder's, and keeps it when it is free.
type Mode = lease.Mode

const (
	// ModeLease: the holder renews, and is succeeded when its lease has expired, or earlier by Config.Detection.
	ModeLease = lease.Renewed
	// ModeCoordinated: as ModeLease, but whoever holds the lease was named by an electing controller, from the LeaseCandidates
	// of the processes that live: the one of the oldest version, so that a roll changes the version once (KEP-4355).
	ModeCoordinated = lease.Coordinated
	// ModeForLife: the holder holds until it gives up, is known to be dead, or its owner object is deleted: see Config.Owner.
	// No time runs against it. Whether a process on another machine is dead, nobody can know: it is waited for.
	ModeForLife = lease.ForLife
)

// kinds are all modes. Each is described in a file of its own.
var kinds = []kind{renewingKind, coordinatedKind, forLifeKind}

// Modes are all modes.
var Modes = []Mode{kinds[0].name, kinds[1].name, kinds[2].name}

// kind describes a mode.
type kind struct {
	name Mode
	// elects: an electing controller names the holder, and nobody else prefers one.
	elects bool
	// objects: holder identities are names of objects.
	objects bool
	// patience is for how much longer than others a lease of this mode that is free is left to the replicas of this mode.
	patience time.Duration
	// requests is how many requests more than in others it takes to end a term.
	requests int
	// unreleased is what becomes of a lease that a quarantined process does not release.
	unreleased string
	// faults are what contradicts the mode in a configuration, nil if nothing does: see Config.ValidateAs.
	faults func(cfg Config, name func(field string) string) []error
	// complete checks what New is given for the mode, and takes away what is for others.
	complete func(*Config) error
	// begin returns the mode for one call of Run. It starts nothing.
	begin func(*Elector) mode
}

// kindOf describes the mode of that name; it is zero for one that this program does not know.
func kindOf(name Mode) kind {
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name }); i >= 0 {
		return kinds[i]
	}
	return kind{}
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
