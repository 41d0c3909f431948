package leasecandidate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
)

const (
	// patience is how long a candidate may take to answer a ping. A candidate that has just lost the lease is
	// probably stopping, and gets patienceWithLeavers.
	patience, patienceWithLeavers = 5 * time.Second, 500 * time.Millisecond
	// remembered is how long an answer counts. It is longer than patience.
	remembered = 2 * patience
	// longestSilence is after how long without a sign of life a candidate is pinged, even without an election.
	longestSilence = 15 * time.Minute
	// lifetime is after how long without a sign of life a candidate is deleted.
	lifetime = 2 * longestSilence
	// firstDuration is the lease duration of an elected candidate until it renews for the first time.
	firstDuration = 5 * time.Second
)

// election is what is known of one Lease and its candidates. All times are by this process's clock. A time that a
// client writes is only compared with earlier times of the same client.
type election struct {
	lease *coordinationv1.Lease // nil: it does not exist
	// seen is when the lease was first seen in this state: absent, free, or held with this renewal.
	seen       time.Time
	candidates []candidate
}

// candidate is one of the Lease's candidates.
type candidate struct {
	*coordinationv1beta1.LeaseCandidate
	// found is when the candidate was first seen.
	found time.Time
	// heard is when the candidate was last seen to appear or to renew. It is zero for a candidate that existed when
	// this process began to look, until it renews.
	heard time.Time
	// asked is when the ping that the candidate has not answered was first seen. Zero: there is none.
	asked time.Time
	// left is when the candidate was seen to lose the lease. It may be stopping. Zero: it never held the lease, or
	// was heard since.
	left time.Time
}

// sign returns the time of the candidate's last known sign of life.
func (c candidate) sign() time.Time {
	if c.heard.IsZero() {
		return c.found
	}
	return c.heard
}

// lives reports whether the candidate was heard recently. A candidate that lost the lease or was pinged since then may
// be dead.
func (c candidate) lives(now time.Time) bool {
	return !c.heard.IsZero() && now.Sub(c.heard) < remembered && c.asked.IsZero() && c.left.IsZero()
}

// until returns the time by which a pinged candidate must have answered.
func (c candidate) until() time.Time {
	if c.left.IsZero() {
		return c.asked.Add(patience)
	}
	since := c.asked
	if c.left.After(since) {
		since = c.left
	}
	return since.Add(patienceWithLeavers)
}

// decision is what to do about an election now.
type decision struct {
	// elect is the name of the new holder. Empty: none.
	elect string
	// prefer is the preferred holder to write. Nil: it does not change.
	prefer *string
	// strategy is the strategy to write, for a Lease that somebody else elects for. Empty: it does not change.
	strategy coordinationv1.CoordinatedLeaseStrategy
	// ask are the candidates to ping, expired those to delete.
	ask, expired []candidate
	// conflict says why nobody can be elected, if so.
	conflict error
	// due is when to decide again if nothing changes. Zero: never.
	due time.Time
}

// by makes the next decision due at t, or earlier.
func (d *decision) by(t time.Time) {
	if d.due.IsZero() || t.Before(d.due) {
		d.due = t
	}
}

// request adds a candidate to those to ping.
func (d *decision) request(c candidate) {
	if !slices.ContainsFunc(d.ask, func(other candidate) bool { return other.UID == c.UID }) {
		d.ask = append(d.ask, c)
	}
}

// decide decides about an election. It elects only if nobody holds the lease, and only a candidate that has answered:
// with the name of a dead one on the Lease, the others could not lead.
//
// Source: KEP-4355, and the electing controller of kube-apiserver.
func decide(e election, now time.Time) decision {
	var d decision
	present := d.present(e.candidates, now)
	if len(present) == 0 {
		return d
	}
	strategy, err := strategyOf(present)
	if err != nil {
		d.conflict = err
		return d
	}
	if e.isEndless() {
		return d
	}
	held, until := e.isHeld(now)
	if held && e.lease.Spec.Strategy == nil {
		d.by(until) // the holder is a plain elector: it ignores preferred holders and would overwrite them
		return d
	}
	if held {
		d.by(until)
	}
	switch {
	case strategy != coordinationv1.OldestEmulationVersion: // somebody else elects by this strategy
		if e.lease == nil || ptr.Deref(e.lease.Spec.Strategy, "") != strategy {
			d.strategy = strategy
		}
	case held:
		d.preferOver(e.lease, ranked(present), now)
	default:
		d.electFor(e, ranked(present), until, now)
	}
	return d
}

// present returns the candidates that have not expired. It pings those that have been silent for long.
func (d *decision) present(all []candidate, now time.Time) []candidate {
	var present []candidate
	for _, c := range all {
		silence := now.Sub(c.sign())
		if silence >= lifetime {
			d.expired = append(d.expired, c)
			continue
		}
		present = append(present, c)
		d.by(c.sign().Add(lifetime))
		switch {
		case !c.asked.IsZero():
		case silence >= longestSilence:
			d.request(c)
		default:
			d.by(c.sign().Add(longestSilence))
		}
	}
	return present
}

// isEndless reports whether the holder never renews the lease, which then does not expire.
func (e election) isEndless() bool {
	return e.lease != nil && holderOf(e.lease) != "" && e.lease.Spec.RenewTime == nil && e.lease.Spec.Strategy == nil
}

// isHeld reports whether somebody holds the lease. at is when the lease expires unless it is renewed, or since when
// nobody holds it.
func (e election) isHeld(now time.Time) (so bool, at time.Time) {
	if e.lease == nil || ptr.Deref(e.lease.Spec.HolderIdentity, "") == "" {
		return false, e.seen
	}
	duration := firstDuration
	if s := ptr.Deref(e.lease.Spec.LeaseDurationSeconds, 0); s > 0 {
		duration = time.Duration(s) * time.Second
	}
	expiry := e.seen.Add(duration)
	return now.Before(expiry), expiry
}

// preferOver asks the holder to make way if a better candidate lives. Of candidates with equal versions that were
// created in the same second, the holder stays.
func (d *decision) preferOver(lease *coordinationv1.Lease, ranked []candidate, now time.Time) {
	better := ranked
	if i := slices.IndexFunc(ranked, func(c candidate) bool { return c.Name == *lease.Spec.HolderIdentity }); i >= 0 {
		better = slices.DeleteFunc(slices.Clone(ranked[:i]), func(c candidate) bool { return rank(c, ranked[i]) == 0 })
	}
	current := ptr.Deref(lease.Spec.PreferredHolder, "")
	best, open := d.best(better, now)
	if open && slices.ContainsFunc(better, func(c candidate) bool { return c.Name == current }) {
		return // the preferred one may still turn out to be the best
	}
	if best != current {
		d.prefer = &best
	}
}

// electFor elects a holder for a lease that nobody holds. A candidate that has let the lease expire has left.
func (d *decision) electFor(e election, ranked []candidate, expiry, now time.Time) {
	for i, c := range ranked {
		if c.Name == holderOf(e.lease) && !c.heard.After(expiry) {
			ranked[i].left = expiry
		}
	}
	d.elect, _ = d.best(ranked, now)
}

// best returns the name of the first candidate that lives. It pings the candidates before it that may live. While one
// of these may still answer, open is true and name is empty.
func (d *decision) best(ranked []candidate, now time.Time) (name string, open bool) {
	for _, c := range ranked {
		switch {
		case c.lives(now):
			if open {
				return "", true
			}
			return c.Name, false
		case c.asked.IsZero():
			d.request(c)
			open = true
		case now.Before(c.until()):
			d.by(c.until())
			open = true
		}
	}
	return "", open
}

// ranked returns the candidates that have valid versions, best first.
func ranked(candidates []candidate) []candidate {
	var ranked []candidate
	for _, c := range candidates {
		if _, err := version.ParseSemantic(c.Spec.EmulationVersion); err != nil {
			continue
		}
		if _, err := version.ParseSemantic(c.Spec.BinaryVersion); err == nil {
			ranked = append(ranked, c)
		}
	}
	slices.SortFunc(ranked, func(a, b candidate) int { return cmp.Or(rank(a, b), cmp.Compare(a.Name, b.Name)) })
	return ranked
}

// rank compares candidates. The better one has the older emulation version, else the older binary version, else the
// earlier second of creation.
func rank(a, b candidate) int {
	return cmp.Or(
		compare(a.Spec.EmulationVersion, b.Spec.EmulationVersion),
		compare(a.Spec.BinaryVersion, b.Spec.BinaryVersion),
		cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()),
	)
}

// strategyOf returns the strategy of the candidates with the newest binary version. These must agree.
func strategyOf(candidates []candidate) (coordinationv1.CoordinatedLeaseStrategy, error) {
	newest := slices.MaxFunc(candidates, func(a, b candidate) int { return compare(a.Spec.BinaryVersion, b.Spec.BinaryVersion) })
	for _, c := range candidates {
		if compare(c.Spec.BinaryVersion, newest.Spec.BinaryVersion) == 0 && c.Spec.Strategy != newest.Spec.Strategy {
			return "", fmt.Errorf("candidates %q and %q have the same binary version %s and want different strategies, %q and %q: "+
				"nobody is elected until they agree", newest.Name, c.Name, newest.Spec.BinaryVersion, newest.Spec.Strategy, c.Spec.Strategy)
		}
	}
	return newest.Spec.Strategy, nil
}

// parsed parses a version. It returns version zero if text is none.
func parsed(text string) *version.Version {
	if v, err := version.ParseSemantic(text); err == nil {
		return v
	}
	return zero
}

var zero = version.MustParseSemantic("0.0.0")

// compare compares versions. One that cannot be parsed is the oldest.
func compare(a, b string) int {
	if a == b { // mostly
		return 0
	}
	switch a, b := parsed(a), parsed(b); {
	case a.LessThan(b):
		return -1
	case b.LessThan(a):
		return 1
	default:
		return 0
	}
}

// question returns a candidate with a ping. Its time is by the candidate's own clock, right after its last sign of
// life: a candidate answers a ping that is later than its last renewal.
func question(c *coordinationv1beta1.LeaseCandidate) *coordinationv1beta1.LeaseCandidate {
	c = c.DeepCopy()
	last := ptr.Deref(c.Spec.RenewTime, metav1.MicroTime{Time: time.Unix(0, 0)})
	c.Spec.PingTime = &metav1.MicroTime{Time: last.Add(time.Microsecond)}
	return c
}

// write returns the Lease to write, or nil if it does not change. highest is the highest epoch that was seen.
func (d decision) write(lease *coordinationv1.Lease, highest int32, now time.Time) *coordinationv1.Lease {
	if d.elect == "" && d.prefer == nil && d.strategy == "" {
		return nil
	}
	out := &coordinationv1.Lease{}
	if lease != nil {
		out = lease.DeepCopy()
	}
	if d.strategy != "" {
		out.Spec.Strategy = &d.strategy
		return out
	}
	out.Spec.Strategy = ptr.To(coordinationv1.OldestEmulationVersion)
	out.Spec.PreferredHolder = nil
	if d.prefer != nil && *d.prefer != "" {
		out.Spec.PreferredHolder = d.prefer
	}
	if d.elect != "" {
		out.Spec.HolderIdentity = &d.elect
		out.Spec.LeaseTransitions = ptr.To(max(highest, ptr.Deref(out.Spec.LeaseTransitions, 0)) + 1)
		out.Spec.LeaseDurationSeconds = ptr.To(int32(firstDuration / time.Second))
		out.Spec.RenewTime = &metav1.MicroTime{Time: now}
		out.Spec.AcquireTime = out.Spec.RenewTime
	}
	return out
}
