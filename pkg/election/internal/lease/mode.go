package lease

import coordinationv1 "k8s.io/api/coordination/v1"

// Mode names what it takes to keep the lease. The Lease names its holder's, and keeps it when it is free.
type Mode string

// The modes: see election.Mode.
const (
	Renewed     Mode = "lease"
	Coordinated Mode = "coordinated"
	ForLife     Mode = "for-life"
)

// modeOf is the mode in which the Lease is held, or was held last; empty if it says nothing of that. What the holder says of itself
// counts, whatever else others have written. One that says nothing was named by whoever elects; otherwise it renews, as everyone's
// electors do.
func modeOf(lease *coordinationv1.Lease) Mode {
	switch p, said := saidPresence(lease); {
	case looksHeldForLife(lease):
		return ForLife
	case p.ElectionMode != "":
		return p.ElectionMode
	case lease != nil && lease.Spec.Strategy != nil:
		return Coordinated
	case !said && holderOf(lease) == "":
		return ""
	default: // a stock elector, or a version that knew one mode only
		return Renewed
	}
}

// looksHeldForLife reports whether the Lease is held for life also if somebody has edited what the holder says of itself, or taken
// it off: there is an owner, and neither when it was renewed nor for how long it is held, which every elector writes that renews.
// If what is said there is another's, somebody has put a new holder in its place.
func looksHeldForLife(lease *coordinationv1.Lease) bool {
	if holderOf(lease) == "" || len(lease.OwnerReferences) == 0 || lease.Spec.RenewTime != nil || lease.Spec.LeaseDurationSeconds != nil {
		return false
	}
	p, some := PresenceOn(lease)
	return !some || p.Holder == holderOf(lease)
}
