package election

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
)

// observation is what this process knows of the Lease, and since when. It is an immutable value: next returns another.
type observation struct {
	// lease is the Lease as last seen; nil if there is none, or if nothing was seen yet (revision is empty then).
	lease *coordinationv1.Lease
	// revision is the resourceVersion as of which this was so.
	revision string
	// since is when, on this process's clock, the signs of life were first seen as they are now.
	since time.Time
	// termSince is when uid, holder and epoch were first seen as they are now.
	termSince time.Time
	// before is the highest epoch that was seen before the term was that it shows.
	before int64
	// highest is the highest epoch ever seen on a Lease of this name, mode what it last said of that. They outlive deletions.
	highest int64
	mode    Mode
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
func (o observation) next(lease *coordinationv1.Lease, revision string, now time.Time) (_ observation, news bool) {
	if o.known() {
		if order, err := resourceversion.CompareResourceVersion(revision, o.revision); err == nil && order <= 0 {
			return o, false
		}
	}
	if o.known() && o.lease == nil && lease == nil {
		o.revision = revision
		return o, false
	}
	seen := observation{lease: lease, revision: revision, since: now, termSince: now, highest: max(o.highest, epochOf(lease)), mode: o.mode}
	if mode := modeOf(lease); mode != "" {
		seen.mode = mode
	}
	seen.before = o.highest
	if o.known() {
		before, after := o.signs(), seen.signs()
		if before == after {
			seen.since = o.since
		}
		before.renewed = after.renewed
		if before == after {
			seen.termSince, seen.before = o.termSince, o.before
		}
	}
	return seen, true
}

// known reports whether anything was seen at all.
func (o observation) known() bool { return o.revision != "" }

// holder is the holder identity; empty if nobody holds the lease.
func (o observation) holder() string { return holderOf(o.lease) }

// epoch is the Lease's epoch; 0 if there is no Lease.
func (o observation) epoch() int64 { return epochOf(o.lease) }

// forLife reports whether the lease is held, and does not expire.
func (o observation) forLife() bool { return o.holder() != "" && modeOf(o.lease) == ModeForLife }

// expiry is when the lease expires unless it is renewed; it has no meaning for one that is held for life. fallback is the
// duration of a Lease that says none.
func (o observation) expiry(fallback time.Duration) time.Time {
	duration := fallback
	if o.lease != nil && ptr.Deref(o.lease.Spec.LeaseDurationSeconds, 0) > 0 {
		duration = time.Duration(*o.lease.Spec.LeaseDurationSeconds) * time.Second
	}
	return o.since.Add(duration)
}

func (o observation) signs() signsOfLife {
	if o.lease == nil {
		return signsOfLife{}
	}
	signs := signsOfLife{uid: o.lease.UID, holder: o.holder(), epoch: o.epoch()}
	if renewed := o.lease.Spec.RenewTime; renewed != nil {
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

// preferredOf is who should hold the lease instead of its holder, by the electing controller of mode coordinated.
func preferredOf(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.Strategy == nil {
		return ""
	}
	return ptr.Deref(lease.Spec.PreferredHolder, "")
}

func epochOf(lease *coordinationv1.Lease) int64 {
	if lease == nil {
		return 0
	}
	return int64(ptr.Deref(lease.Spec.LeaseTransitions, 0))
}
