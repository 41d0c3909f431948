package election

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ending is what the Lease says of the end of its last term.
type ending struct {
	why         string
	failedParts []string
	failed      bool          // by the term's own work
	preferred   string        // the replica that should lead next
	lasted      time.Duration // zero if that is not known
	// standbyPriority and alone are of those who could lead next: see presence.
	standbyPriority int32
	alone           bool
}

// partial is implemented by errors of a LeadFunc that know which parts of its work failed.
type partial interface {
	error
	FailedParts() []string
}

// endingOf is how a term that ended for cause is told to the next leader.
func endingOf(cause error) ending {
	e := ending{why: brief(cause), failed: byItsOwnWork(cause)}
	if p, ok := errors.AsType[partial](cause); ok {
		e.failedParts = slices.Clone(p.FailedParts())
	}
	if r, ok := errors.AsType[*request](cause); ok {
		e.preferred = r.to
	}
	return e
}

// longestBrief bounds what a Lease carries of a cause.
const longestBrief = 256

// brief is the cause's first line, cut short: a panic brings its stack.
func brief(cause error) string {
	line, _, _ := strings.Cut(cause.Error(), "\n")
	line = strings.ToValidUTF8(line[:min(len(line), longestBrief)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line)
}

// freed is held without a holder, and with how its term ended. The suspicions go on, unless that term was calm.
func freed(held *coordinationv1.Lease, how ending) *coordinationv1.Lease {
	before := lease.PredecessorOf(held)
	return lease.Freed(held, lease.Presence{
		StandbyPriority: how.standbyPriority, Alone: how.alone,
		LastStepDown: how.why, FailedParts: how.failedParts, Failed: how.failed, Preferred: how.preferred,
		Suspicions:   nextSuspicions(before.Suspicions, how.lasted, TriggerRelease),
		PresumedDead: presumedDead(before, TriggerRelease),
	})
}
