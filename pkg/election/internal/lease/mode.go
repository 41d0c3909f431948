package lease

import coordinationv1 "k8s.io/api/coordination/v1"

// ModeName says what it takes to keep the lease. The Lease carries the mode of its holder, and keeps it while the lease
// is free.
type ModeName string

// The names of the modes: see election.Mode.
const (
	Renewed     ModeName = "lease"
	Coordinated ModeName = "coordinated"
	ForLife     ModeName = "for-life"
	ByPresence  ModeName = "by-presence"
)

// Expires reports whether a lease that is held in this mode expires unless it is renewed. In a mode that this program
// does not know, it does.
func (m ModeName) Expires() bool { return m != ForLife }

// modeOf returns the mode in which the Lease is held, or was last held; empty if it does not say. A Lease that looks as
// if it does not expire is held for life, unless its holder says that it is held by presence. Otherwise the mode counts
// that the holder has written. If it has written none, a strategy means that an electing controller named the holder,
// and any other holder renews, as client-go's leader election does.
//
// p is what the holder says of itself, if said is true.
func modeOf(lease *coordinationv1.Lease, p Presence, said bool) ModeName {
	switch {
	case !p.ElectionMode.Expires(), p.ElectionMode == ByPresence:
		return p.ElectionMode
	case looksEndless(lease):
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

// looksEndless reports whether the Lease is held and does not expire. It recognises this even if somebody has edited or
// removed what the holder says of itself: the Lease has an owner, but neither a renewTime nor a duration, both of which
// every elector writes that renews. If the presence on the Lease belongs to another holder, somebody has put a new
// holder in its place, and the Lease does not count.
func looksEndless(lease *coordinationv1.Lease) bool {
	if holderOf(lease) == "" || len(lease.OwnerReferences) == 0 || lease.Spec.RenewTime != nil || lease.Spec.LeaseDurationSeconds != nil {
		return false
	}
	p, some := PresenceOn(lease)
	return !some || p.Holder == holderOf(lease)
}
