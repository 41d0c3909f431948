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

// Terms returns the terms of a Lease, in the order in which they began. A holder that comes back is another span of the
// same term: that must never be.
func Terms(events []Event, lease string) []Span {
	var spans []Span
	var current fence.Token
	for _, e := range events {
		if !e.lease || !strings.HasSuffix(e.Key, "/"+lease) {
			continue
		}
		shown := fence.Token{}
		if e.Shows != nil && e.Shows.Holder != "" {
			shown = *e.Shows
		}
		if shown == current {
			continue
		}
		if !current.IsZero() {
			spans[len(spans)-1].To = e.Revision
		}
		if current = shown; !current.IsZero() {
			spans = append(spans, Span{Term: TermOf(current), From: e.Revision})
		}
	}
	return spans
}

// writing is the term that leads under a Lease, if it has written; empty otherwise. It looks no further back than it
// has to.
func writing(events []Event, lease string) string {
	leads, wrote := "", map[string]bool{}
	for _, e := range slices.Backward(events) {
		switch {
		case e.lease && strings.HasSuffix(e.Key, "/"+lease):
			if e.Shows == nil || e.Shows.Holder == "" || leads != "" && leads != TermOf(*e.Shows) {
				return "" // the last one leads no more, or has not written since it began
			}
			leads = TermOf(*e.Shows)
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
