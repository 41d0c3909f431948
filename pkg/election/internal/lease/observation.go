package lease

import (
	"errors"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
)

// Observation is what this process knows of the Lease, and since when, on its own clock. It is immutable: each change
// makes a new one.
type Observation struct {
	// Lease is the Lease as last seen. It is nil if there is none, or if nothing was seen yet (then Revision is
	// empty). Callers must not change it.
	Lease *coordinationv1.Lease
	// Revision is the resourceVersion at which the Lease was seen.
	Revision string
	// Since is when uid, holder, epoch and renewTime were first seen with their present values.
	Since time.Time
	// TermSince is when uid, holder and epoch were first seen with their present values.
	TermSince time.Time
	// Before is the highest epoch seen before the Lease first showed its present term.
	Before int64
	// Highest is the highest epoch ever seen on a Lease of this name. Mode is the last mode that such a Lease
	// showed. Both outlive a deletion of the Lease.
	Highest int64
	Mode    ModeName
	// Past are the latest terms that have ended, the oldest first. They outlive a deletion of the Lease, too.
	// Callers must not change them.
	Past []Past

	// presence is what was seen of the presence of the holder's process, if the lease is held by it: see KeptBy.
	presence *Observation

	// reading is what next has read from Lease. An Observation that next has not made has none.
	reading *reading
}

// reading is what a Lease says, decoded. A process looks at an Observation much more often than the Lease changes, and
// decoding costs more than all else in a look.
type reading struct {
	of       *coordinationv1.Lease
	presence Presence // zero if the holder says nothing
	before   Presence // what the last holder has left: see PredecessorOf
	mode     ModeName
	life     Life
}

func read(lease *coordinationv1.Lease) *reading {
	on, some := PresenceOn(lease)
	p, said := on.saidBy(lease, some)
	return &reading{of: lease, presence: p, before: on.leftOn(lease, some), mode: modeOf(lease, p, said), life: lifeOf(lease, p, said)}
}

// read returns what the Lease says.
func (o Observation) read() *reading {
	if o.reading != nil && o.reading.of == o.Lease {
		return o.reading
	}
	return read(o.Lease)
}

// signsOfLife are the values that change with every renewal. They are compared for equality only, because the clocks of
// two machines differ.
type signsOfLife struct {
	uid     types.UID
	holder  string
	epoch   int64
	renewed int64
}

// next returns the observation after lease was seen at revision; nil means that there was no Lease. news is false if
// revision is not newer than what is known.
func (o Observation) next(lease *coordinationv1.Lease, revision string, now time.Time) (_ Observation, news bool) {
	if o.IsKnown() {
		if order, err := resourceversion.CompareResourceVersion(revision, o.Revision); err == nil && order <= 0 {
			return o, false
		}
	}
	if o.IsKnown() && o.Lease == nil && lease == nil {
		o.Revision = revision
		return o, false
	}
	return o.after(lease, revision, now), true
}

// after returns the observation after lease was seen at revision, whichever that is. What outlives a deletion of the
// Lease outlives a restore of the store, too.
func (o Observation) after(lease *coordinationv1.Lease, revision string, now time.Time) Observation {
	seen := Observation{Lease: lease, Revision: revision, Since: now, TermSince: now, Highest: max(o.Highest, epochOf(lease)), Mode: o.Mode, reading: read(lease)}
	if mode := seen.reading.mode; mode != "" {
		seen.Mode = mode
	}
	seen.Before, seen.Past = o.Highest, o.pastAt(seen, now)
	if o.IsKnown() {
		before, after := o.signs(), seen.signs()
		if before == after {
			seen.Since = o.Since
		}
		before.renewed = after.renewed
		if before == after {
			seen.TermSince, seen.Before = o.TermSince, o.Before
		}
	}
	return seen
}

// IsKnown reports whether anything was seen yet.
func (o Observation) IsKnown() bool { return o.Revision != "" }

// Holder returns the holder identity; empty if nobody holds the lease.
func (o Observation) Holder() string { return holderOf(o.Lease) }

// Epoch returns the Lease's epoch; 0 if there is no Lease.
func (o Observation) Epoch() int64 { return epochOf(o.Lease) }

// Presence returns what the holder says of itself; zero if it says nothing.
func (o Observation) Presence() Presence { return o.read().presence }

// Predecessor returns what the last holder has left on the Lease: see PredecessorOf.
func (o Observation) Predecessor() Presence { return o.read().before }

// Life returns what stands for the life of the holder: see LifeOf.
func (o Observation) Life() Life { return o.read().life }

// Wish returns a standby's wish to succeed the holder; zero if there is none.
func (o Observation) Wish() Wish { return wishOn(o.Lease) }

// Expires reports whether somebody else may take the lease some day, although its holder does not release it. One that
// nobody holds does.
func (o Observation) Expires() bool { return o.Holder() == "" || o.read().mode.Expires() }

// IsByPresence reports whether the lease is held for as long as the presence of its holder's process lasts: Life names
// the Lease of that presence, which has the same holder.
func (o Observation) IsByPresence() bool { return o.Holder() != "" && o.read().mode == ByPresence }

// KeptBy returns o, of a lease that is held by presence, with what is known of that presence: its last renewal is the
// lease's. If nothing is known of it yet, the lease counts as renewed now.
func (o Observation) KeptBy(presence Observation, now time.Time) Observation {
	o.presence, o.Since = &presence, presence.Since
	if !presence.IsKnown() {
		o.Since = now
	}
	return o
}

// KeptAt returns the revision of the presence that keeps the lease; empty if none is known.
func (o Observation) KeptAt() string {
	if o.presence == nil {
		return ""
	}
	return o.presence.Revision
}

// Renewed returns when the holder last renewed the lease, or the presence that keeps it, by the holder's clock; zero if
// it does not say.
func (o Observation) Renewed() time.Time {
	held := o.Lease
	if o.presence != nil {
		held = o.presence.Lease
	}
	if held == nil || held.Spec.RenewTime == nil {
		return time.Time{}
	}
	return held.Spec.RenewTime.Time
}

// Preferred returns the candidate that the electing controller of mode coordinated prefers to the holder; empty if
// there is none.
func (o Observation) Preferred() string {
	if o.Lease == nil || o.Lease.Spec.Strategy == nil {
		return ""
	}
	return ptr.Deref(o.Lease.Spec.PreferredHolder, "")
}

// Expiry returns when the lease expires unless it is renewed. It has no meaning for a lease that does not expire.
// fallback is the duration of a Lease that does not say one.
func (o Observation) Expiry(fallback time.Duration) time.Time {
	held, duration := o.Lease, fallback
	if o.presence != nil {
		held = o.presence.Lease
	}
	if held != nil && ptr.Deref(held.Spec.LeaseDurationSeconds, 0) > 0 {
		duration = time.Duration(*held.Spec.LeaseDurationSeconds) * time.Second
	}
	return o.Since.Add(duration)
}

// ErrNoEpochLeft says that no further term can begin on a Lease, because its epochs have reached the highest value.
var ErrNoEpochLeft = errors.New("no epoch is left")

// NextEpoch returns the epoch of a term that begins now: one more than the highest epoch ever seen, so that epochs also
// grow across a deletion of the Lease. If that is no longer possible, a new Lease continues from its own epoch: its uid
// distinguishes its terms from those of the old Lease. Otherwise the error wraps ErrNoEpochLeft.
func (o Observation) NextEpoch() (int32, error) {
	switch {
	case o.Highest < math.MaxInt32:
		return int32(o.Highest) + 1, nil
	case o.Epoch() < math.MaxInt32:
		return int32(o.Epoch()) + 1, nil
	default:
		return 0, fmt.Errorf("%w: %d is the highest that a Lease can hold", ErrNoEpochLeft, o.Highest)
	}
}

func (o Observation) signs() signsOfLife {
	if o.Lease == nil {
		return signsOfLife{}
	}
	signs := signsOfLife{uid: o.Lease.UID, holder: o.Holder(), epoch: o.Epoch()}
	if renewed := o.Lease.Spec.RenewTime; renewed != nil {
		signs.renewed = renewed.UnixNano()
	}
	return signs
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease == nil {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

func epochOf(lease *coordinationv1.Lease) int64 {
	if lease == nil {
		return 0
	}
	return int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))
}

// Read returns what a consistent read shows, as an Observation of a process that has seen nothing before.
func Read(list *coordinationv1.LeaseList) Observation {
	held, revision := in(list)
	o, _ := Observation{}.next(held, revision, time.Now())
	return o
}
