package election

import (
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

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

// suspicionPause damps what flaps: a machine or a network so slow that every leader seems silent to the others, a firewall
// that refuses connections now and then, so that every leader seems dead. n is how many terms in a row began on a suspicion.
// A leader that really hangs or dies meanwhile costs a lease duration at most.
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

// suspicions is the count that a holder's presence says. A death is none until its victim is heard again: this process knows
// first if that was itself.
func (e *Elector) suspicions(p lease.Presence) int {
	if e.identities.ours(p.PresumedDead) {
		return nextSuspicions(p.Suspicions, 0, TriggerSuspicion)
	}
	return p.Suspicions
}

// presumedDead is the holder whose death, seen from afar, makes a term begin; empty if none does. before is what was on the
// Lease.
func presumedDead(before lease.Presence, trigger Trigger) string {
	switch {
	case before.Holder == "": // it was deposed, and somebody named since
		return before.PresumedDead
	case trigger == TriggerDeath:
		return before.Holder
	default:
		return ""
	}
}

// countSuspicion counts the death on which this term began as a suspicion, if the one who was taken for dead follows this
// process. It reports whether p has changed.
func countSuspicion(p *lease.Presence, follows func(holder string) bool) bool {
	if p.PresumedDead == "" || !follows(p.PresumedDead) {
		return false
	}
	p.Suspicions, p.PresumedDead = nextSuspicions(p.Suspicions, 0, TriggerSuspicion), ""
	return true
}
