package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// phases are those of a takeover, in their order.
var phases = []string{"detect", "break", "acquire", "caches", "first_reconcile", "first_write"}

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
	rows := [][]string{head}
	for i, t := range terms.Terms {
		rows = append(rows, p.term(t, i == 0))
	}
	p.table("", rows)
	return p.flush(w)
}

func (p *page) term(t status.Term, latest bool) []string {
	began := []string{fmt.Sprint(t.Epoch), t.Replica, p.ago(t.Began)}
	ended := orDash(t.EndCause)
	if !p.wide() {
		return append(began, p.length(t, latest), orDash(t.Trigger), gap(t), phase(t, "first_write"), ended)
	}
	if t.EndReason != "" {
		ended += ": " + strings.TrimPrefix(oneLine(t.EndReason), t.EndCause+": ")
	}
	row := append(began[:2], stamp(t.Began), stamp(t.Ended), p.length(t, latest), orDash(t.Trigger), gap(t))
	for _, name := range phases {
		row = append(row, phase(t, name))
	}
	return append(row, ended)
}

// length is how long a term lasted. The latest one goes on if nobody has seen its end.
func (p *page) length(t status.Term, latest bool) string {
	switch {
	case !t.Ended.IsZero():
		return span(t.Ended.Sub(t.Began))
	case latest:
		return span(p.Now.Sub(t.Began)) + ", goes on"
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
