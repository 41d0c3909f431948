package election

import "time"

const (
	// shortestBackoff is how long a replica does not campaign after its first failed term; it doubles with each more.
	shortestBackoff = time.Second
	// longestBackoff caps that. A term that lasts as long is healthy: the next failure counts as the first.
	longestBackoff = time.Minute
)

// pace says when this process may campaign again. It is owned by Run's goroutine.
//
// A term that its own work ended costs a growing back-off, so that a replica that cannot do the work does not keep the
// lease. That includes a step down that the work asks for: a controller that always asks for one would move the lease back
// and forth. A step down on request costs one retry period, so that another replica can have it, and so does being fenced.
// They are waited for while this process's term is the last, and when the one after it failed too, so that two replicas
// that cannot do the work do not take turns. Nothing else is delayed: not a release or deletion by another, nor an expiry,
// nor a death that was seen.
type pace struct {
	retryPeriod time.Duration

	failures int       // terms in a row that their work ended
	rested   time.Time // no campaign before

	tried   string // the revision on which a write failed
	misses  int    // how often in a row
	retryAt time.Time
}

// termEnded takes in how a term went.
func (p *pace) termEnded(cause error, lasted time.Duration, now time.Time) {
	if lasted >= longestBackoff {
		p.failures = 0
	}
	switch c := causeOf(cause); {
	case requested(cause), c == Fenced:
		p.rested = now.Add(p.retryPeriod)
	case c == StepDown, c == Failed:
		p.rested = now.Add(doubled(shortestBackoff, p.failures, longestBackoff))
		p.failures++
		if atLeast := now.Add(p.retryPeriod); c == StepDown && p.rested.Before(atLeast) {
			p.rested = atLeast
		}
	}
}

// writeFailed takes in that a write on revision failed: the same is not tried again at once.
func (p *pace) writeFailed(revision string, now time.Time) {
	p.tried = revision
	p.retryAt = now.Add(doubled(p.retryPeriod/8, p.misses, 2*p.retryPeriod))
	p.misses++
}

// writeSucceeded forgets the failures before it.
func (p *pace) writeSucceeded() { p.tried, p.misses = "", 0 }

// earliest is when act may be done on revision. rests says whether the rest after this process's last term counts.
func (p *pace) earliest(act action, revision string, rests bool) time.Time {
	var at time.Time
	if act == win && rests {
		at = p.rested
	}
	if revision == p.tried && p.retryAt.After(at) {
		at = p.retryAt
	}
	return at
}

// doubled is d, doubled n times, at most longest.
func doubled(d time.Duration, n int, longest time.Duration) time.Duration {
	for ; n > 0 && d < longest; n-- {
		d *= 2
	}
	return min(d, longest)
}
