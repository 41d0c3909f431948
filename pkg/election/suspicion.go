package election

import (
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

const (
	// shortestSuspicionPause is for how long a term that began on a suspicion cannot be succeeded on another
	// suspicion. It doubles with each such term in a row.
	shortestSuspicionPause = 5 * time.Second
	// longestSuspicionPause is the upper limit.
	longestSuspicionPause = time.Minute
	// mostSuspicions limits a count that somebody may have edited on the Lease. It is far beyond what makes a
	// difference.
	mostSuspicions = 100
)

// suspicionPause returns for how long a term cannot be succeeded on a suspicion. n is how many terms in a row began on
// one. The pause damps flapping, for example where a slow machine or network makes every leader seem silent, or a
// firewall makes every leader seem dead. If a leader really hangs or dies during the pause, others wait for its end, or
// for the lease to expire if that is earlier.
func suspicionPause(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return doubled(shortestSuspicionPause, n-1, longestSuspicionPause)
}

// nextSuspicions returns the count of suspicions for a term that begins because of trigger. n is the count of the term
// before, which lasted that long. If that was twice the pause before the next suspicion, and at least a minute, the
// count begins anew.
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

// suspicions returns the count of suspicions in a holder's presence. A death counts as a suspicion only when its victim
// is heard again. If the victim is this process, it counts at once.
func (e *Elector) suspicions(p lease.Presence) int {
	if e.identities.ours(p.PresumedDead) {
		return nextSuspicions(p.Suspicions, 0, TriggerSuspicion)
	}
	return p.Suspicions
}

// presumedDead returns the holder that seems dead, if a term begins for that reason without proof; empty otherwise.
// before is what the Lease said before the term.
func presumedDead(before lease.Presence, trigger Trigger) string {
	switch {
	case before.Holder == "": // it was deposed, and another was named since
		return before.PresumedDead
	case trigger == TriggerDeath:
		return before.Holder
	default:
		return ""
	}
}

// countSuspicion counts the death because of which this term began as a suspicion, if the process that was presumed
// dead follows this one and so is alive. It reports whether p has changed.
func countSuspicion(p *lease.Presence, follows func(holder string) bool) bool {
	if p.PresumedDead == "" || !follows(p.PresumedDead) {
		return false
	}
	p.Suspicions, p.PresumedDead = nextSuspicions(p.Suspicions, 0, TriggerSuspicion), ""
	return true
}
