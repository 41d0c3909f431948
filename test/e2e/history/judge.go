package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Span is a term, between two revisions: that at which its Lease first showed it, and the first at which it did not any
// more; 0 if it still does.
type Span struct {
	Term     string
	From, To int64
}

// divided is the holder of an election's Lease while it has several ranges, which have Leases of their own.
const divided = "ranges"

// Terms returns the terms of a Lease, and of those of its ranges, in the order in which they began. A holder that comes
// back is another span of the same term: that must never be. All terms of ranges are over when their number is one
// (I17).
func Terms(events []Event, lease string) []Span {
	var spans []Span
	shown, open := map[string]fence.Token{}, map[string]int{} // by key; open has the index of the span that goes on
	end := func(key string, at int64) {
		if n, ok := open[key]; ok {
			spans[n].To = at
			delete(open, key)
		}
	}
	for _, e := range events {
		if !e.isOfElection(lease) {
			continue
		}
		before, next := shown[e.Key], e.shows()
		if next == before {
			continue
		}
		shown[e.Key] = next
		end(e.Key, e.Revision)
		if before.Holder == divided && next.Holder != divided {
			for key := range open {
				end(key, e.Revision)
			}
		}
		if !next.IsZero() && next.Holder != divided {
			open[e.Key] = len(spans)
			spans = append(spans, Span{Term: TermOf(next), From: e.Revision})
		}
	}
	return spans
}

// isOfElection reports whether an event is of that Lease, or of one of its ranges.
func (e Event) isOfElection(lease string) bool {
	if !e.lease {
		return false
	}
	_, of, ok := strings.Cut(e.Key, "/"+lease)
	return ok && (of == "" || rangeLease.FindString(of) == of)
}

// shows is what the Lease shows since; zero if nobody holds it.
func (e Event) shows() fence.Token {
	if e.Shows == nil || e.Shows.Holder == "" {
		return fence.Token{}
	}
	return *e.Shows
}

// writing is the term that leads under a Lease, if it has written; empty otherwise. It looks no further back than it
// has to.
func writing(events []Event, lease string) string {
	leads, wrote := "", map[string]bool{}
	for _, e := range slices.Backward(events) {
		switch {
		case e.lease && strings.HasSuffix(e.Key, "/"+lease):
			shown := e.shows()
			if shown.IsZero() || leads != "" && leads != TermOf(shown) {
				return "" // the last one leads no more, or has not written since it began
			}
			leads = TermOf(shown)
		case e.Term != "" && isObject(e):
			wrote[e.Term] = true
		}
		if wrote[leads] {
			return leads
		}
	}
	return ""
}

// Twice returns the terms that began twice.
func Twice(spans []Span) []string {
	var twice []string
	seen := map[string]bool{}
	for _, s := range spans {
		if seen[s.Term] {
			twice = append(twice, s.Term)
		}
		seen[s.Term] = true
	}
	return twice
}

// Stale returns the changes that committed outside of their terms (I2).
func Stale(events []Event, spans []Span) []string {
	terms := map[string]Span{}
	for _, s := range spans {
		terms[s.Term] = s
	}
	var stale []string
	for _, e := range events {
		if e.Term == "" || !isObject(e) {
			continue
		}
		s, ok := terms[e.Term]
		if !ok || e.Revision <= s.From || s.To != 0 && e.Revision >= s.To {
			stale = append(stale, fmt.Sprintf("%s at revision %d by term %s, which lasted from %d to %d", e.Key, e.Revision, e.Term, s.From, s.To))
		}
	}
	return stale
}

// isObject tells what the writer writes from what else is in etcd.
func isObject(e Event) bool { return strings.Contains(e.Key, "/core/configmaps/") }

// Backwards returns the changes of an object by a term that began before that of the change before it (I3).
func Backwards(events []Event, spans []Span) []string {
	order := map[string]int{}
	for i, s := range spans {
		order[s.Term] = i
	}
	last := map[string]Event{}
	var backwards []string
	for _, e := range events {
		if _, began := order[e.Term]; !began || !isObject(e) { // Stale tells of terms that never began
			continue
		}
		if before, ok := last[e.Key]; ok && order[e.Term] < order[before.Term] {
			backwards = append(backwards, fmt.Sprintf("%s: term %s at revision %d, after term %s at %d", e.Key, e.Term, e.Revision, before.Term, before.Revision))
		}
		last[e.Key] = e
	}
	return backwards
}

// FirstBy is when the first change of a term was seen here; zero if there is none.
func FirstBy(events []Event, term string) time.Time {
	for _, e := range events {
		if e.Term == term && isObject(e) {
			return e.At
		}
	}
	return time.Time{}
}

// CountBy counts the changes of a term.
func CountBy(events []Event, term string) (n int) {
	for _, e := range events {
		if e.Term == term && isObject(e) {
			n++
		}
	}
	return n
}
