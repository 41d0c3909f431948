package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Past is a term that has ended, as far as it is known.
type Past struct {
	Epoch  int64  `json:"epoch,omitempty"`
	Holder string `json:"holder,omitempty"`
	// Replica is empty if the holder did not say it.
	Replica string `json:"replica,omitempty"`
	// Began is when the holder acquired the lease, by its own clock. Ended is when this process saw the end. If it
	// did not see that, Ended is when the holder released the lease, by the holder's clock. Both are zero if nobody
	// has said so.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Renewed is when the holder last renewed the lease, and Duration how long the lease then was; zero if it does
	// not expire.
	Renewed  time.Time     `json:"-"`
	Duration time.Duration `json:"-"`
	// Cause is the Cause or the Trigger of the term's end; empty if its successor only knows it. Reason has
	// details.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// mostPast is how many terms an Observation remembers.
const mostPast = 3

// PastOf returns the term that a Lease shows, if it has just ended.
func PastOf(lease *coordinationv1.Lease, now time.Time) Past {
	p := Past{Epoch: epochOf(lease), Holder: holderOf(lease), Replica: PresenceOf(lease).Replica, Ended: now}
	if lease == nil {
		return p
	}
	if acquired := lease.Spec.AcquireTime; acquired != nil {
		p.Began = acquired.Time
	}
	if renewed, lasts := lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds; renewed != nil && lasts != nil {
		p.Renewed, p.Duration = renewed.Time, time.Duration(*lasts)*time.Second
	}
	return p
}

// is reports whether both are the same term.
func (p Past) is(other Past) bool { return p.Epoch == other.Epoch && p.Holder == other.Holder }

// pastAt returns the terms that have ended when seen follows o, the oldest first.
func (o Observation) pastAt(seen Observation, now time.Time) []Past {
	before, after := o.signs(), seen.signs()
	before.renewed = after.renewed
	if o.IsKnown() && before == after {
		return o.Past
	}
	left := leftOn(seen.Lease)
	ended, some := o.ended(seen, left, now)
	switch {
	case some:
	case left.Holder != "" && (len(o.Past) == 0 || !o.Past[len(o.Past)-1].is(left)):
		ended = left // this process has not seen that term
	default:
		return o.Past
	}
	past := append(o.Past[:len(o.Past):len(o.Past)], ended)
	return past[max(0, len(past)-mostPast):]
}

// ended returns the term that o shows, if it has ended when seen follows. left is what seen says of the term before it.
func (o Observation) ended(seen Observation, left Past, now time.Time) (p Past, some bool) {
	p = PastOf(o.Lease, now)
	said := o.Presence().Holder != ""
	switch {
	case p.Holder == "", p.is(PastOf(seen.Lease, now)):
		return p, false
	case !said && o.Lease.Spec.Strategy != nil: // a candidate that was named, and has not begun
		return p, false
	case left.is(p):
		p.Cause, p.Reason = left.Cause, left.Reason
	case seen.Lease == nil:
		p.Cause, p.Reason = deposed, "the Lease was deleted"
	case seen.Holder() == "" && PredecessorOf(seen.Lease).LastStepDown != "": // released by an older version
		p.Reason = PredecessorOf(seen.Lease).LastStepDown
	case seen.Holder() == "":
		p.Cause, p.Reason = deposed, "the holder was taken off the Lease"
	case seen.Presence().Holder == "":
		p.Cause, p.Reason = deposed, "the lease was taken by "+seen.Holder()
	}
	return p, true
}

// deposed is election.Deposed.
const deposed = "deposed"

// leftOn returns what a Lease without a holder says of its last term; zero if it says nothing.
func leftOn(lease *coordinationv1.Lease) (past Past) {
	before := PredecessorOf(lease)
	if before.Holder != "" || before.Last == nil {
		return Past{}
	}
	past = *before.Last
	if past.Reason == "" {
		past.Reason = before.LastStepDown
	}
	return past
}
