package history

import (
	"maps"
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/status"
)

// Terms returns the terms that the entries tell of, the latest first, at most Most. The entries are in the order in
// which they were written. now is what a replica sees of each range: it counts unless it is older than the entries.
// Ranges have nothing to do with each other, so their terms are in the order in which they began.
func Terms(entries []Entry, now ...Entry) []status.Term {
	tales := map[int]*tale{}
	of := func(e Entry) *tale {
		if tales[e.Range] == nil {
			tales[e.Range] = &tale{}
		}
		return tales[e.Range]
	}
	for _, e := range entries {
		of(e).hear(e)
	}
	for _, e := range now {
		if t := of(e); !t.isBehind(e) {
			t.hear(e)
		}
	}
	var all []status.Term
	for _, index := range slices.Sorted(maps.Keys(tales)) {
		t := *tales[index]
		t.settle()
		if len(now) > 0 && !slices.ContainsFunc(now, func(e Entry) bool { return e.Range == index }) {
			t.close()
		}
		slices.Reverse(t)
		all = append(all, t...)
	}
	if len(tales) > 1 {
		slices.SortStableFunc(all, func(a, b status.Term) int { return b.Began.Compare(a.Began) })
	}
	return all[:min(len(all), Most)]
}

// tale are terms, the oldest first.
type tale []status.Term

// close says that the last term is over: there are not as many ranges any more.
func (t tale) close() {
	if last := &t[len(t)-1]; last.EndCause == "" {
		last.EndCause, last.EndReason = string(election.Shutdown), "the number of ranges has changed"
	}
}

// hear adds what an entry tells. Terms of which it does not know that others lie between them are put as late as they
// can be.
func (t *tale) hear(e Entry) {
	at := len(*t)
	if e.Epoch != 0 {
		if at = t.find(e.Term); at < 0 {
			at = len(*t)
			*t = append(*t, e.Term)
		} else {
			complete(&(*t)[at], e.Term)
		}
	}
	for _, before := range slices.Backward(e.Before) {
		i := t.find(before)
		switch {
		case i < 0:
			at = t.place(at, before)
			*t = slices.Insert(*t, at, before)
		case i < at:
			complete(&(*t)[i], before)
			at = i
		}
	}
}

// place returns where a term belongs that ended before the one at an index: before those of higher epochs, unless these
// are of an older Lease.
func (t *tale) place(at int, one status.Term) int {
	for ; at > 0; at-- {
		before := (*t)[at-1]
		older := !before.Began.IsZero() && !one.Began.IsZero() && before.Began.Before(one.Began)
		if before.Epoch < one.Epoch || older {
			break
		}
	}
	return at
}

func (t *tale) find(one status.Term) int {
	return slices.IndexFunc(*t, one.Is)
}

// isBehind reports whether the latest term that an entry tells is older than the latest of the tale.
func (t *tale) isBehind(e Entry) bool {
	latest := e.Term
	if n := len(e.Before); latest.Epoch == 0 && n > 0 {
		latest = e.Before[n-1]
	}
	return len(*t) > 0 && t.find(latest) < 0 && latest.Epoch < (*t)[len(*t)-1].Epoch
}

// complete adds to a term what another telling has more. What was told first counts, because it was told by the direct
// successor.
func complete(t *status.Term, told status.Term) {
	if t.Replica == "" {
		t.Replica = told.Replica
	}
	if t.Began.IsZero() {
		t.Began = told.Began
	}
	if t.Trigger == "" {
		t.Trigger = told.Trigger
	}
	if t.EndCause == "" && (told.EndCause != "" || t.Ended.IsZero()) {
		t.Ended, t.EndCause, t.EndReason = told.Ended, told.EndCause, told.EndReason
	}
}

// settle makes the times agree, which are those of several clocks: no term ends before it begins, or after the next one
// has begun.
func (t *tale) settle() {
	var next time.Time
	for n := len(*t) - 1; n >= 0; n-- {
		one := &(*t)[n]
		if !one.Ended.IsZero() && !next.IsZero() && one.Ended.After(next) {
			one.Ended = next
		}
		if !one.Ended.IsZero() && one.Ended.Before(one.Began) {
			one.Ended = one.Began
		}
		if !one.Began.IsZero() {
			next = one.Began
		}
	}
}
