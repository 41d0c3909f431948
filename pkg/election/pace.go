package election

import "time"

const (
	// shortestBackoff is how long a replica does not campaign after its first failed term. The time doubles with
	// each further one.
	shortestBackoff = time.Second
	// longestBackoff is the upper limit. A term that has lasted this long was healthy, and the next failure counts
	// as the first.
	longestBackoff = time.Minute
)

// pace says when this process may campaign again. Run's goroutine owns it.
//
// A term that its own work ended is followed by a growing back-off, so that a replica that cannot do the work does not
// keep the lease. This includes a step down that the work asked for: otherwise a controller that always asks would move
// the lease back and forth. A step down on request, and a fenced term, are followed by one retry period, so that
// another replica can lead.
//
// The process rests only while its own term is the latest one on the Lease, or while the latest term failed, too. So
// two replicas that cannot do the work do not take turns. Nothing else delays a campaign.
type pace struct {
	retryPeriod time.Duration

	failures int       // terms in a row that their own work ended
	rested   time.Time // no campaign before this time

	tried   string    // the revision on which the last write failed
	misses  int       // how many writes have failed in a row
	retryAt time.Time // no write on that revision before this time
}

// termEnded records how a term ended.
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

// writeFailed records that a write on revision failed. The next write on the same revision has to wait.
func (p *pace) writeFailed(revision string, now time.Time) {
	p.tried = revision
	p.retryAt = now.Add(doubled(p.retryPeriod/8, p.misses, 2*p.retryPeriod))
	p.misses++
}

// writeSucceeded forgets earlier failures.
func (p *pace) writeSucceeded() { p.tried, p.misses = "", 0 }

// earliest returns when this process may do act on revision. rests says whether it must rest after its last term.
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

// doubled returns d doubled n times, but no more than longest.
func doubled(d time.Duration, n int, longest time.Duration) time.Duration {
	for ; n > 0 && d < longest; n-- {
		d *= 2
	}
	return min(d, longest)
}
