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

// Observation is what this process knows of the Lease, and since when, on its own clock. It is an immutable value: each change of
// a View is another.
type Observation struct {
	// Lease is the Lease as last seen; nil if there is none, or if nothing was seen yet (Revision is empty then). It must not be
	// changed.
	Lease *coordinationv1.Lease
	// Revision is the resourceVersion as of which this was so.
	Revision string
	// Since is when the signs of life were first seen as they are now: uid, holder, epoch and renewTime.
	Since time.Time
	// TermSince is when uid, holder and epoch were first seen as they are now.
	TermSince time.Time
	// Before is the highest epoch that was seen before the term was that the Lease shows.
	Before int64
	// Highest is the highest epoch ever seen on a Lease of this name, Mode what it last said of that. They outlive deletions.
	Highest int64
	Mode    Mode
}

// signsOfLife change with every renewal. They are compared for equality only: clocks of two machines are not.
type signsOfLife struct {
	uid     types.UID
	holder  string
	epoch   int64
	renewed int64
}

// next is the observation after seeing lease (nil: none) as of revision. News is false if that is older than what is
// known, or the same.
func (o Observation) next(lease *coordinationv1.Lease, revision string, now time.Time) (_ Observation, news bool) {
	if o.Known() {
		if order, err := resourceversion.CompareResourceVersion(revision, o.Revision); err == nil && order <= 0 {
			return o, false
		}
	}
	if o.Known() && o.Lease == nil && lease == nil {
		o.Revision = revision
		return o, false
	}
	seen := Observation{Lease: lease, Revision: revision, Since: now, TermSince: now, Highest: max(o.Highest, epochOf(lease)), Mode: o.Mode}
	if mode := modeOf(lease); mode != "" {
		seen.Mode = mode
	}
	seen.Before = o.Highest
	if o.Known() {
		before, after := o.signs(), seen.signs()
		if before == after {
			seen.Since = o.Since
		}
		before.renewed = after.renewed
		if before == after {
			seen.TermSince, seen.Before = o.TermSince, o.Before
		}
	}
	return seen, true
}

// Known reports whether anything was seen at all.
func (o Observation) Known() bool { return o.Revision != "" }

// Holder is the holder identity; empty if nobody holds the lease.
func (o Observation) Holder() string { return holderOf(o.Lease) }

// Epoch is the Lease's epoch; 0 if there is no Lease.
func (o Observation) Epoch() int64 { return epochOf(o.Lease) }

// Presence is what the holder says of itself; zero if it says nothing.
func (o Observation) Presence() Presence { return PresenceOf(o.Lease) }

// Predecessor is what the last holder has left on the Lease: see PredecessorOf.
func (o Observation) Predecessor() Presence { return PredecessorOf(o.Lease) }

// Wish is a standby's wish to succeed the holder; zero if there is none.
func (o Observation) Wish() Wish { return wishOn(o.Lease) }

// HeldForLife reports whether the lease is held, and does not expire.
func (o Observation) HeldForLife() bool { return o.Holder() != "" && modeOf(o.Lease) == ForLife }

// Preferred is who should hold the lease instead of its holder, by the electing controller of mode coordinated; empty if nobody.
func (o Observation) Preferred() string {
	if o.Lease == nil || o.Lease.Spec.Strategy == nil {
		return ""
	}
	return ptr.Deref(o.Lease.Spec.PreferredHolder, "")
}

// Expiry is when the lease expires unless it is renewed; it has no meaning for one that is held for life. fallback is the
// duration of a Lease that says none.
func (o Observation) Expiry(fallback time.Duration) time.Time {
	duration := fallback
	if o.Lease != nil && ptr.Deref(o.Lease.Spec.LeaseDurationSeconds, 0) > 0 {
		duration = time.Duration(*o.Lease.Spec.LeaseDurationSeconds) * time.Second
	}
	return o.Since.Add(duration)
}

// ErrNoEpochLeft is the end of a Lease: no later term could be told from an earlier one.
var ErrNoEpochLeft = errors.New("no epoch is left")

// NextEpoch is the epoch of a term that begins now. It goes on from the highest epoch ever seen, so that epochs grow across a
// deletion too. Where that cannot be any more, the uid tells a new Lease's terms from the old one's, and epochs grow as long as it
// lives. The error is ErrNoEpochLeft.
func (o Observation) NextEpoch() (int32, error) {
	switch {
	case o.Highest < math.MaxInt32:
		return int32(o.Highest) + 1, nil
	case o.Epoch() < math.MaxInt32:
		return int32(o.Epoch()) + 1, nil
	default:
		return 0, fmt.Errorf("%w: %d is the last that a Lease can hold", ErrNoEpochLeft, o.Highest)
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
