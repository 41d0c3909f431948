package election

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Mode says what it takes to keep the lease. The Lease names its holder's, and keeps it when it is free.
type Mode string

const (
	// ModeLease: the holder renews, and is succeeded when its lease has expired, or earlier by Config.Detection.
	ModeLease Mode = "lease"
	// ModeCoordinated: as ModeLease, but whoever holds the lease was named by an electing controller, from the LeaseCandidates
	// of the processes that live: the one of the oldest version, so that a roll changes the version once (KEP-4355).
	ModeCoordinated Mode = "coordinated"
	// ModeForLife: the holder holds until it gives up, is known to be dead, or its owner object is deleted: see Config.Owner.
	// No time runs against it. Whether a process on another machine is dead, nobody can know: it is waited for.
	ModeForLife Mode = "for-life"
)

// Modes are the values of --leader-election-mode.
var Modes = []Mode{ModeLease, ModeCoordinated, ModeForLife}

// modeOf is the mode in which the Lease is held, or was held last; empty if it says nothing of that. What the holder says of itself
// counts, whatever else others have written. One that says nothing was named by whoever elects; otherwise it renews, as everyone's
// electors do.
func modeOf(lease *coordinationv1.Lease) Mode {
	switch p, said := saidPresence(lease); {
	case looksHeldForLife(lease):
		return ModeForLife
	case p.ElectionMode != "":
		return p.ElectionMode
	case lease != nil && lease.Spec.Strategy != nil:
		return ModeCoordinated
	case !said && holderOf(lease) == "":
		return ""
	default: // a stock elector, or a version that knew one mode only
		return ModeLease
	}
}

// looksHeldForLife reports whether the Lease is held for life also if somebody has edited what the holder says of itself, or taken
// it off: there is an owner, and neither when it was renewed nor for how long it is held, which every elector writes that renews.
// If what is said there is another's, somebody has put a new holder in its place.
func looksHeldForLife(lease *coordinationv1.Lease) bool {
	if holderOf(lease) == "" || len(lease.OwnerReferences) == 0 || lease.Spec.RenewTime != nil || lease.Spec.LeaseDurationSeconds != nil {
		return false
	}
	p := presenceOn(lease)
	return p == nil || p.Holder == holderOf(lease)
}

// ownerOf is the uid of the object that the election itself made the Lease's owner, empty if there is none. That stands
// whoever holds the Lease now.
func ownerOf(lease *coordinationv1.Lease) types.UID {
	if p := presenceOn(lease); p != nil {
		return p.Owner
	}
	return lifeAmongOwners(lease).uid
}

// disown takes that owner off. Owners that others have given the Lease stay.
func disown(lease *coordinationv1.Lease) {
	for i, owner := range lease.OwnerReferences {
		if owner.UID == ownerOf(lease) {
			lease.OwnerReferences = slices.Delete(slices.Clone(lease.OwnerReferences), i, i+1)
			return
		}
	}
}
