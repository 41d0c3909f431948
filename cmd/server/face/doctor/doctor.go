// Package doctor looks at an installation as somebody would who knows it well: at what replicas say, at what they
// measure, and at what a client sees of them. It says what it has looked at, and what to do about what it has found.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/metrics"
	"github.com/regent-project/regent/pkg/server/status"
)

// Evidence is what there is to look at.
type Evidence struct {
	// Of is what the replicas say, with its problems.
	Of status.Installation
	// Replicas is what was measured, in the order of Of.
	Replicas []Replica
	// Version is that of this program.
	Version string
	Now     time.Time
}

// Replica is what was measured of a replica.
type Replica struct {
	Shard, Name string
	// Fault says why this machine could not ask it.
	Fault   string
	Metrics metrics.Interval
	Seen    ask.Measured
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

// Report is what was looked at and found.
type Report struct {
	Checked  []Check          `json:"checked"`
	Problems []status.Problem `json:"problems"`
}

// Examine looks at all of it. It asks nobody.
func Examine(e Evidence) Report {
	r := &report{Evidence: e}
	r.Problems = append(r.Problems, e.Of.Problems...)
	for _, s := range e.Of.Shards {
		r.said(s)
	}
	r.fleet()
	for _, replica := range e.Replicas {
		x := &examination{report: r, Replica: replica, of: replica.Shard + "/" + replica.Name}
		if replica.Fault != "" {
			x.check("reached from here", false, "%s", replica.Fault)
			continue
		}
		for _, look := range looks {
			look(x)
		}
	}
	slices.SortStableFunc(r.Problems, func(a, b status.Problem) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
	return r.Report
}

func rank(s status.Severity) int {
	return slices.Index([]status.Severity{status.Critical, status.Warning, status.Notice}, s)
}

type report struct {
	Evidence
	Report
}

// said notes what the replicas of a shard say.
func (r *report) said(s status.Shard) {
	for _, matter := range status.Matters {
		if !ofAll(matter) {
			r.summary(matter, s.Name, func(p status.Problem) bool { return p.Shard == s.Name })
		}
	}
}

// fleet notes what all replicas say together.
func (r *report) fleet() {
	for _, matter := range status.Matters {
		if ofAll(matter) {
			r.summary(matter, "all replicas", func(status.Problem) bool { return true })
		}
	}
}

// ofAll reports whether a matter is one of all replicas together, and not of each shard.
func ofAll(m status.Matter) bool { return m == status.MatterVersions || m == status.MatterClocks }

func (r *report) summary(matter status.Matter, of string, among func(status.Problem) bool) {
	var found []string
	for _, p := range r.Of.Problems {
		if among(p) && p.About() == matter && !slices.Contains(found, p.Kind) {
			found = append(found, p.Kind)
		}
	}
	check := Check{Name: string(matter), Of: of, OK: len(found) == 0, Result: "ok"}
	if !check.OK {
		check.Result = strings.Join(found, ", ")
	}
	r.Checked = append(r.Checked, check)
}

// examination is what there is to look at of one replica.
type examination struct {
	*report
	Replica
	of string
}

func (x *examination) check(name string, ok bool, format string, args ...any) bool {
	x.Checked = append(x.Checked, Check{Name: name, Of: x.of, OK: ok, Result: fmt.Sprintf(format, args...)})
	return ok
}

func (x *examination) found(severity status.Severity, kind, what string, remedy ...string) {
	x.Problems = append(x.Problems, status.Problem{
		Severity: severity, Shard: x.Shard, Replica: x.Name, Kind: kind, What: what, Remedy: strings.Join(append(remedy, "See docs/CLI.md#doctor"), "\n"),
	})
}
