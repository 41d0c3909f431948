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
	// patience is how long a candidate that was asked whether it lives may take to answer; of one that just left, less is
	// expected.
	patience, patienceWithLeavers = 5 * time.Second, 500 * time.Millisecond
	// remembered is how long an answer counts: longer than others are waited for.
	remembered = 2 * patience
	// longestSilence is after how long without a sign a candidate is asked, whether there is an election or not.
	longestSilence = 15 * time.Minute
	// lifetime is after how long without a sign a candidate is deleted.
	lifetime = 2 * longestSilence
	// firstDuration is the lease of an electee until it renews for the first time.
	firstDuration = 5 * time.Second
)

// election is what is known of one Lease and of those who want it. All instants are of this process's clock: what clients
// write as times is only ever compared with what the same client wrote before.
type election struct {
	lease *coordinationv1.Lease // nil: there is none
	// seen is when the lease was first seen to be as it is: not there, free, or held and renewed last by this holder then.
	seen       time.Time
	candidates []candidate
}

// candidate is one of those who want it.
type candidate struct {
	*coordinationv1beta1.LeaseCandidate
	// found is when it was first seen.
	found time.Time
	// heard is when it was seen to appear or to renew; zero if it was there already when this process began to look, and
	// has not renewed since.
	heard time.Time
	// asked is when the question that it has not answered was first seen; zero if there is none.
	asked time.Time
	// left is when it was seen to hold the lease no more; zero if it never held it, or was heard since. It may stop.
	left time.Time
}

// sign is when it last showed that it lives, as far as is known.
func (c candidate) sign() time.Time {
	if c.heard.IsZero() {
		return c.found
	}
	return c.heard
}

// lives reports whether it was heard of late. Whoever left, or was asked, since then may not live any more.
func (c candidate) lives(now time.Time) bool {
	return !c.heard.IsZero() && now.Sub(c.heard) < remembered && c.asked.IsZero() && c.left.IsZero()
}

// until is how long it may take to answer, once it was asked.
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
	// elect is who is to be named as the holder; empty: nobody.
	elect string
	// prefer is to be written as the preferred holder, nil: what is there may stay.
	prefer *string
	// strategy is to be written, where nobody is elected; empty: what is there may stay.
	strategy coordinationv1.CoordinatedLeaseStrategy
	// ask are to be asked whether they live, expired are to be deleted.
	ask, expired []candidate
	// conflict is why nobody can be elected; nil otherwise.
	conflict error
	// due is when to decide again if nothing changes; zero: never.
	due time.Time
}

// by has the next decision made at t, or earlier.
func (d *decision) by(t time.Time) {
	if d.due.IsZero() || t.Before(d.due) {
		d.due = t
	}
}

// request has a candidate asked, once.
func (d *decision) request(c candidate) {
	if !slices.ContainsFunc(d.ask, func(other candidate) bool { return other.UID == c.UID }) {
		d.ask = append(d.ask, c)
	}
}

// decide is the rule, as of now. It elects only where nobody holds the lease, and who is preferred then is asked to answer
// first: a name of the dead would keep the others from it.
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
	if e.heldForLife() {
		return d
	}
	held, until := e.held(now)
	if held && e.lease.Spec.Strategy == nil {
		d.by(until) // by a plain elector, which knows nothing of preferred holders and would wipe what is written here
		return d
	}
	if held {
		d.by(until)
	}
	switch {
	case strategy != coordinationv1.OldestEmulationVersion: // somebody else's to elect by
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

// present are the candidates that have not expired. Those who were silent for long are asked.
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

// heldForLife reports whether somebody holds the lease who never renews it: it does not expire.
func (e election) heldForLife() bool {
	return e.lease != nil && holderOf(e.lease) != "" && e.lease.Spec.RenewTime == nil && e.lease.Spec.Strategy == nil
}

// held reports whether somebody holds the lease, and until when if nothing is heard from the holder; if nobody does, since
// when.
func (e election) held(now time.Time) (held bool, at time.Time) {
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

// preferOver has the holder of a lease make way for a candidate that is better and lives, by more than its name: of equals
// that were made in one second, whoever leads goes on.
func (d *decision) preferOver(lease *coordinationv1.Lease, ranked []candidate, now time.Time) {
	better := ranked
	if i := slices.IndexFunc(ranked, func(c candidate) bool { return c.Name == *lease.Spec.HolderIdentity }); i >= 0 {
		better = slices.DeleteFunc(slices.Clone(ranked[:i]), func(c candidate) bool { return rank(c, ranked[i]) == 0 })
	}
	current := ptr.Deref(lease.Spec.PreferredHolder, "")
	best, open := d.best(better, now)
	if open && slices.ContainsFunc(better, func(c candidate) bool { return c.Name == current }) {
		return // it may be right
	}
	if best != current {
		d.prefer = &best
	}
}

// electFor elects for a lease that nobody holds. Who let it expire, then, has left.
func (d *decision) electFor(e election, ranked []candidate, expiry, now time.Time) {
	for i, c := range ranked {
		if c.Name == holderOf(e.lease) && !c.heard.After(expiry) {
			ranked[i].left = expiry
		}
	}
	d.elect, _ = d.best(ranked, now)
}

// best returns the name of the first candidate that lives, empty if there is none or, which open reports, if one before it
// may live. Whoever may live is asked.
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

// ranked are the candidates with versions, the best first, then by name.
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

// rank compares candidates: the better one has the older emulation version, then the older binary version, then is the older
// one, by whole seconds.
func rank(a, b candidate) int {
	return cmp.Or(
		compare(a.Spec.EmulationVersion, b.Spec.EmulationVersion),
		compare(a.Spec.BinaryVersion, b.Spec.BinaryVersion),
		cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix()),
	)
}

// strategyOf is that of the candidates with the newest binary version, who must agree.
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

// parsed is a version; the zero version if it is none.
func parsed(text string) *version.Version {
	if v, err := version.ParseSemantic(text); err == nil {
		return v
	}
	return zero
}

var zero = version.MustParseSemantic("0.0.0")

// compare compares versions; one that cannot be read is the oldest.
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

// question returns a candidate's object that asks it whether it lives. The instant is of the candidate's own clock, just after
// its last sign: it answers where it sees one that is later than that, by whatever clock.
func question(c *coordinationv1beta1.LeaseCandidate) *coordinationv1beta1.LeaseCandidate {
	c = c.DeepCopy()
	last := ptr.Deref(c.Spec.RenewTime, metav1.MicroTime{Time: time.Unix(0, 0)})
	c.Spec.PingTime = &metav1.MicroTime{Time: last.Add(time.Microsecond)}
	return c
}

// write returns the lease as it is to be written; nil: as it is. highest is the highest epoch that was ever seen.
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
