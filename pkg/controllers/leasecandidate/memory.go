package leasecandidate

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// memory is what this process has seen of one election, and when. That somebody lives is known by what changes, never by the
// times that clients write: their clocks are their own.
type memory struct {
	// old are the candidates that were there before this process began to look. They may be of any age.
	old        map[types.UID]bool
	lease      *coordinationv1.Lease
	seen       time.Time
	epoch      int32
	candidates map[types.UID]candidate
	conflict   string
}

// conflicted takes in why nobody can be elected, and reports whether that is news.
func (m *memory) conflicted(err error) bool {
	why := ""
	if err != nil {
		why = err.Error()
	}
	news := why != m.conflict
	m.conflict = why
	return news
}

// look takes in what there is now, and returns all that is known.
func (m *memory) look(lease *coordinationv1.Lease, candidates []*coordinationv1beta1.LeaseCandidate, now time.Time) election {
	left := m.lookAtLease(lease, now)
	known := make(map[types.UID]candidate, len(candidates))
	e := election{lease: lease, seen: m.seen}
	for _, obj := range candidates {
		c, ok := m.candidates[obj.UID]
		answered := ok && !c.Spec.RenewTime.Equal(obj.Spec.RenewTime)
		asked := owesAnswer(obj) && (!ok || !c.Spec.PingTime.Equal(obj.Spec.PingTime))
		if !ok {
			c.found = now
		}
		if answered || !ok && !m.old[obj.UID] {
			c.heard, c.left = now, time.Time{}
		}
		if left != "" && obj.Name == left {
			c.left = now
		}
		switch {
		case asked:
			c.asked = now
		case answered, !owesAnswer(obj):
			c.asked = time.Time{} // an answer is one, even if by its own clock the candidate still owes it
		}
		c.LeaseCandidate = obj
		known[obj.UID] = c
		e.candidates = append(e.candidates, c)
	}
	m.candidates = known
	return e
}

// lookAtLease returns who has just been seen to hold it no more; empty: nobody.
func (m *memory) lookAtLease(lease *coordinationv1.Lease, now time.Time) (left string) {
	before, holder := holderOf(m.lease), holderOf(lease)
	if m.seen.IsZero() || holder != before || holder != "" && !sameTerm(m.lease, lease) {
		m.seen = now
	}
	switch {
	case lease != nil:
		m.epoch = max(m.epoch, ptr.Deref(lease.Spec.LeaseTransitions, 0))
	case m.epoch == math.MaxInt32: // of one that had no epoch left, and was deleted: the uid tells the new one's from the old one's
		m.epoch = 0
	}
	m.lease = lease
	if holder == before {
		return ""
	}
	return before
}

// sameTerm reports whether a holder has neither renewed nor acquired the lease anew.
func sameTerm(a, b *coordinationv1.Lease) bool {
	return a.UID == b.UID && a.Spec.RenewTime.Equal(b.Spec.RenewTime) &&
		ptr.Equal(a.Spec.LeaseTransitions, b.Spec.LeaseTransitions)
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease == nil {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// owesAnswer is by the rule that candidates go by themselves.
func owesAnswer(c *coordinationv1beta1.LeaseCandidate) bool {
	ping, renewed := c.Spec.PingTime, c.Spec.RenewTime
	return ping != nil && (renewed == nil || ping.After(renewed.Time))
}
