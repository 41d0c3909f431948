package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/status"
)

// Evidence is what there is to look at.
type Evidence struct {
	// Of is what the replicas say, with its problems.
	Of status.Installation
	// Replicas is what was measured, in the order of Of.
	Replicas []ask.Replica
	// Version is that of this program.
	Version string
	Now     time.Time
}

// Check is something that was looked at.
type Check struct {
	Name string `json:"name"`
	// Of is what it was looked at of: a shard, or a replica as <shard>/<replica>.
	Of string `json:"of"`
	// OK: nothing was found. Result says what was seen.
	OK     bool   `json:"ok"`
	Result string `json:"result"`
}

// Findings are what was looked at and found.
type Findings struct {
	Checked  []Check          `json:"checked"`
	Problems []status.Problem `json:"problems"`
}

// Examine looks at an installation as somebody would who knows it well: at what replicas say, at what they measure, and
// at what a client sees of them. It says what it has looked at, and what to do about what it has found.
func Examine(e Evidence) Findings {
	d := &doctor{Evidence: e}
	d.Problems = append(d.Problems, e.Of.Problems...)
	for _, s := range e.Of.Shards {
		d.shard(s)
	}
	d.together()
	for _, replica := range e.Replicas {
		x := &patient{doctor: d, Replica: replica, of: replica.Shard + "/" + replica.Name}
		if replica.Fault != "" {
			x.check("reached from here", false, "%s", replica.Fault)
			continue
		}
		for _, look := range looks {
			look(x)
		}
	}
	slices.SortStableFunc(d.Problems, func(a, b status.Problem) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
	return d.Findings
}

func rank(s status.Severity) int {
	return slices.Index([]status.Severity{status.Critical, status.Warning, status.Notice}, s)
}

type doctor struct {
	Evidence
	Findings
}

// shard notes what the replicas of a shard say.
func (d *doctor) shard(s status.Shard) {
	for _, matter := range status.Matters {
		if !ofAll(matter) {
			d.summary(matter, s.Name, func(p status.Problem) bool { return p.Shard == s.Name })
		}
	}
}

// together notes what all replicas say together.
func (d *doctor) together() {
	for _, matter := range status.Matters {
		if ofAll(matter) {
			d.summary(matter, "all replicas", func(status.Problem) bool { return true })
		}
	}
}

// ofAll reports whether a matter is one of all replicas together, and not of each shard.
func ofAll(m status.Matter) bool { return m == status.MatterVersions || m == status.MatterClocks }

func (d *doctor) summary(matter status.Matter, of string, among func(status.Problem) bool) {
	var found []string
	for _, p := range d.Of.Problems {
		if among(p) && p.About() == matter && !slices.Contains(found, p.Kind) {
			found = append(found, p.Kind)
		}
	}
	check := Check{Name: string(matter), Of: of, OK: len(found) == 0, Result: "ok"}
	if !check.OK {
		check.Result = strings.Join(found, ", ")
	}
	d.Checked = append(d.Checked, check)
}

// patient is what there is to look at of one replica.
type patient struct {
	*doctor
	ask.Replica
	of string
}

func (x *patient) check(name string, ok bool, format string, args ...any) bool {
	x.Checked = append(x.Checked, Check{Name: name, Of: x.of, OK: ok, Result: fmt.Sprintf(format, args...)})
	return ok
}

func (x *patient) add(severity status.Severity, kind, what string, remedy ...string) {
	x.Problems = append(x.Problems, status.Problem{
		Severity: severity, Shard: x.Shard, Replica: x.Name, Kind: kind, What: what, Remedy: strings.Join(append(remedy, "See docs/CLI.md#doctor"), "\n"),
	})
}

// Report writes what was looked at, and what was found.
func Report(w io.Writer, look Look, findings Findings) error {
	if !look.IsFor() {
		return Encode(w, look.Format, findings)
	}
	p := &page{Look: look}
	rows := [][]string{{"CHECKED", "OF", "RESULT"}}
	for _, c := range findings.Checked {
		result := c.Result
		if !c.OK {
			result = p.warning("! ") + result
		}
		rows = append(rows, []string{c.Name, c.Of, result})
	}
	p.table("", rows)
	p.line("")
	p.problems(findings.Problems)
	return p.flush(w)
}
