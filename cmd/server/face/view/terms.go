package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// phases are those of a takeover, in their order.
var phases = []string{"detect", "break", "acquire", "caches", "first_reconcile", firstWrite}

const firstWrite = "first_write"

// Terms writes the history of a shard.
func Terms(w io.Writer, look Look, terms status.Terms) error {
	if !look.IsFor() {
		return Encode(w, look.Format, terms)
	}
	p := &page{Look: look}
	if len(terms.Terms) == 0 {
		p.line("No terms of shard %s are remembered.", terms.Shard)
		return p.flush(w)
	}
	head := []string{"EPOCH", "REPLICA", "BEGAN", "LASTED", "TRIGGER", "GAP", "FIRST WRITE", "ENDED BY"}
	if look.wide() {
		head = []string{"EPOCH", "REPLICA", "BEGAN", "ENDED", "LASTED", "TRIGGER", "GAP", "DETECT", "BREAK", "ACQUIRE", "CACHES", "FIRST RECONCILE", "FIRST WRITE", "ENDED BY"}
	}
	divided := slices.ContainsFunc(terms.Terms, func(t status.Term) bool { return t.Range != 0 })
	if divided {
		head = append([]string{"RANGE"}, head...)
	}
	rows, latest := [][]string{head}, map[int]bool{}
	for _, t := range terms.Terms {
		row := p.term(t, !latest[t.Range])
		latest[t.Range] = true
		if divided {
			row = append([]string{fmt.Sprint(t.Range)}, row...)
		}
		rows = append(rows, row)
	}
	p.table("", rows)
	if slices.ContainsFunc(terms.Terms, wroteNothing) {
		p.line("")
		p.line("FIRST WRITE none: controllers had nothing to write in the first 10 s of the term.")
	}
	return p.flush(w)
}

// wroteNothing reports whether the leader has measured its takeover, and wrote nothing meanwhile.
func wroteNothing(t status.Term) bool {
	_, wrote := t.Phases[firstWrite]
	return t.Phases != nil && !wrote
}

func (p *page) term(t status.Term, latest bool) []string {
	began := []string{fmt.Sprint(t.Epoch), t.Replica, p.ago(t.Began)}
	ended := orDash(t.EndCause)
	if !p.wide() {
		return append(began, p.length(t, latest), trigger(t), gap(t), phase(t, firstWrite), ended)
	}
	if t.EndReason != "" {
		ended += ": " + strings.TrimPrefix(oneLine(t.EndReason), t.EndCause+": ")
	}
	row := append(began[:2], stamp(t.Began), stamp(t.Ended), p.length(t, latest), trigger(t), gap(t))
	for _, name := range phases {
		row = append(row, phase(t, name))
	}
	return append(row, ended)
}

// trigger is what made the replica campaign. Nobody has led before a first term.
func trigger(t status.Term) string {
	if t.IsFirst() {
		return "first term"
	}
	return orDash(t.Trigger)
}

// length is how long a term lasted. The latest one has not ended if nobody has seen its end.
func (p *page) length(t status.Term, latest bool) string {
	switch {
	case !t.Ended.IsZero():
		return span(t.Ended.Sub(t.Began))
	case latest && t.EndCause == "":
		return span(p.Now.Sub(t.Began)) + " so far"
	}
	return "not known"
}

func gap(t status.Term) string {
	if t.Gap == 0 {
		return "-"
	}
	return span(seconds(t.Gap))
}

func phase(t status.Term, name string) string {
	s, ok := t.Phases[name]
	if name == firstWrite && wroteNothing(t) {
		return "none"
	}
	if !ok {
		return "-"
	}
	return span(seconds(s))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
