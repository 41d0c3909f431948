package election

import "time"

const (
	// shortestSuspicionPause is how long a term must have lasted before it is succeeded on a suspicion, if it began on
	// one itself; it doubles with each such term in a row.
	shortestSuspicionPause = 5 * time.Second
	// longestSuspicionPause caps that.
	longestSuspicionPause = time.Minute
	// mostSuspicions is where a count that was edited on the Lease is taken to be at most: far beyond what makes a
	// difference.
	mostSuspicions = 100
)

// suspicionPause damps what flaps: a machine or a network so slow that every leader seems silent to the others. n is how
// many terms in a row began on a suspicion. A leader that really hangs costs a lease duration at most.
func suspicionPause(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return doubled(shortestSuspicionPause, n-1, longestSuspicionPause)
}

// nextSuspicions counts on from n, the count of a term that lasted so long, to a term that begins because of trigger.
// A term that lasts twice the pause before the next suspicion, and a minute, was calm.
func nextSuspicions(n int, lasted time.Duration, trigger Trigger) int {
	n = min(max(n, 0), mostSuspicions)
	if lasted >= max(longestSuspicionPause, 2*suspicionPause(n)) {
		n = 0
	}
	if trigger == TriggerSuspicion {
		n++
	}
	return n
}
