// Package history keeps and tells the terms of a shard, so that operators can ask who led, and why, when the leader of
// then is gone. Each leader writes one Entry in its term (Book). An Entry also tells how the terms before ended, so
// that no term has to write at its end, and the ends of those that could not write are known, too (Terms).
package history

import (
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/status"
)

// Entry is what one leader knows: its own term, and the latest terms before it, the oldest first. An Entry without an
// epoch has no term.
type Entry struct {
	status.Term
	Before []status.Term `json:"before,omitempty"`
}

// NewEntry returns what the leader of a range knows in its term. past are the terms that its elector has seen end: see
// election.Status. phases are in seconds.
func NewEntry(index int, term election.Term, replica string, past []election.PastTerm, phases map[string]float64) Entry {
	return newEntry(index, term.Epoch(), term.Token().Holder, term.Takeover(), replica, past, phases)
}

func newEntry(index int, epoch int64, holder string, takeover election.Takeover, replica string, past []election.PastTerm, phases map[string]float64) Entry {
	e := Entry{Term: status.Term{Range: index, Epoch: epoch, Holder: holder, Replica: replica, Began: takeover.Acquired, Trigger: string(takeover.Trigger), Phases: phases}}
	for _, p := range past {
		if p.Holder == e.Holder && p.Epoch == e.Epoch {
			break // this term is over, too
		}
		e.Before = append(e.Before, pastTerm(index, p))
	}
	if n := len(e.Before) - 1; n >= 0 && e.Before[n].Epoch == e.Epoch-1 {
		last := &e.Before[n]
		if last.EndCause == "" {
			last.EndCause, last.Ended = e.Trigger, lastSign(past[n], takeover.Symptom)
		}
		e.Gap = max(0, e.Began.Sub(last.Ended).Seconds())
	}
	return e.clipped()
}

// lastSign returns when a holder last showed a sign of life that has not released its lease. symptom is when the
// successor noticed, but if it began to watch when the lease had expired, only the Lease says more.
func lastSign(p election.PastTerm, symptom time.Time) time.Time {
	if !p.Renewed.IsZero() && symptom.Sub(p.Renewed) > p.Duration {
		return p.Renewed
	}
	return symptom
}

// Now returns what a replica sees now of a range. If nobody holds the lease, the Entry has no epoch.
func Now(index int, s election.Status) Entry {
	e := Entry{Term: status.Term{Range: index}}
	if s.Holder != "" {
		e.Term = status.Term{Range: index, Epoch: s.Epoch, Holder: s.Holder, Replica: s.Leader, Began: s.Began, Trigger: string(s.Trigger)}
	}
	for _, p := range s.Past {
		e.Before = append(e.Before, pastTerm(index, p))
	}
	return e.clipped()
}

func pastTerm(index int, p election.PastTerm) status.Term {
	return status.Term{Range: index, Epoch: p.Epoch, Holder: p.Holder, Replica: p.Replica, Began: p.Began, Ended: p.Ended, EndCause: p.Cause, EndReason: p.Reason}
}

// longest is how many bytes of a name or a reason are kept. The Lease, which others may edit, could have more.
const longest = 256

func (e Entry) clipped() Entry {
	clipTerm(&e.Term)
	for n := range e.Before {
		clipTerm(&e.Before[n])
	}
	return e
}

func clipTerm(t *status.Term) {
	for _, text := range []*string{&t.Holder, &t.Replica, &t.EndCause, &t.EndReason} {
		*text = strings.ToValidUTF8((*text)[:min(len(*text), longest)], "")
	}
	// By the wall clock, as JSON has it, and as exact as the times on a Lease.
	t.Began, t.Ended = t.Began.Truncate(time.Microsecond).UTC(), t.Ended.Truncate(time.Microsecond).UTC()
}
