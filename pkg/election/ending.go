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
	failed      bool // because of the term's own work
	// the Cause or the Trigger of the end; empty: no work was done in the term, as far as its process knows
	cause     string
	details   string        // of the cause, if why does not say them
	preferred string        // the name of the replica that should lead next
	lasted    time.Duration // zero: not known
	// standbyPriority and alone describe the standbys at the end of the term: see lease.Presence.
	standbyPriority int32
	alone           bool
}

// partial is an error of a LeadFunc that names the parts of its work that failed: see Term.FailedParts.
type partial interface {
	error
	FailedParts() []string
}

// endingOf returns what the Lease says after a term that ended for cause.
func endingOf(cause error) ending {
	e := ending{why: brief(cause), failed: byItsOwnWork(cause), cause: string(causeOf(cause))}
	if p, ok := errors.AsType[partial](cause); ok {
		e.failedParts = slices.Clone(p.FailedParts())
	}
	if r, ok := errors.AsType[*request](cause); ok {
		e.preferred = r.to
	}
	return e
}

// longestBrief bounds what the Lease carries of a cause, in bytes.
const longestBrief = 256

// brief returns the first line of the cause, cut to longestBrief. A panic has its stack in the lines after.
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

// freed returns the Lease held without its holder, and with how its term ended. The count of suspicions goes on unless
// that term was calm: see nextSuspicions.
func freed(held *coordinationv1.Lease, how ending) *coordinationv1.Lease {
	before := lease.PredecessorOf(held)
	last := lease.PastOf(held, time.Now())
	last.Cause, last.Reason = how.cause, how.details
	return lease.Freed(held, lease.Presence{
		StandbyPriority: how.standbyPriority, Alone: how.alone,
		LastStepDown: how.why, FailedParts: how.failedParts, Failed: how.failed, Preferred: how.preferred, Last: &last,
		Suspicions:   nextSuspicions(before.Suspicions, how.lasted, TriggerRelease),
		PresumedDead: presumedDead(before, TriggerRelease),
	})
}
