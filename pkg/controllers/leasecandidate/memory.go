package leasecandidate

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// memory is what this process has seen of one election, and when. Signs of life are changes, and not the times that
// clients write: their clocks may differ.
type memory struct {
	// old are the candidates that existed before this process began to look. They may be of any age.
	old        map[types.UID]bool
	lease      *coordinationv1.Lease
	seen       time.Time
	epoch      int32
	candidates map[types.UID]candidate
	conflict   string
}

// conflicted records why nobody can be elected, and reports whether that has changed.
func (m *memory) conflicted(err error) bool {
	why := ""
	if err != nil {
		why = err.Error()
	}
	news := why != m.conflict
	m.conflict = why
	return news
}

// look records the current state and returns all that is known.
func (m *memory) look(lease *coordinationv1.Lease, candidates []*coordinationv1beta1.LeaseCandidate, now time.Time) election {
	loser := m.lookAtLease(lease, now)
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
		if loser != "" && obj.Name == loser {
			c.left = now
		}
		switch {
		case asked:
			c.asked = now
		case answered, !owesAnswer(obj):
			c.asked = time.Time{} // a renewal is an answer, even if its time is before that of the ping
		}
		c.LeaseCandidate = obj
		known[obj.UID] = c
		e.candidates = append(e.candidates, c)
	}
	m.candidates = known
	return e
}

// lookAtLease records the Lease, and returns the name of the holder that has just lost it, if any.
func (m *memory) lookAtLease(lease *coordinationv1.Lease, now time.Time) (loser string) {
	before, holder := holderOf(m.lease), holderOf(lease)
	if m.seen.IsZero() || holder != before || holder != "" && !sameTerm(m.lease, lease) {
		m.seen = now
	}
	switch {
	case lease != nil:
		m.epoch = max(m.epoch, ptr.Deref(lease.Spec.LeaseTransitions, 0))
	case m.epoch == math.MaxInt32: // the Lease was deleted because it had no epoch left; a new one has another uid
		m.epoch = 0
	}
	m.lease = lease
	if holder == before {
		return ""
	}
	return before
}

// sameTerm reports whether the holder has neither renewed the lease nor acquired it anew.
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

// owesAnswer reports whether the candidate has not answered a ping. Candidates use the same rule.
func owesAnswer(c *coordinationv1beta1.LeaseCandidate) bool {
	ping, renewed := c.Spec.PingTime, c.Spec.RenewTime
	return ping != nil && (renewed == nil || ping.After(renewed.Time))
}
