package election

import "github.com/regent-project/regent/pkg/election/internal/lease"

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

// Modes are the values of --leader-election-mode.
var Modes = []Mode{ModeLease, ModeCoordinated, ModeForLife}
