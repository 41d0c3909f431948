package view

import (
	"io"

	"github.com/regent-project/regent/cmd/server/face/doctor"
)

// Report writes what was looked at, and what was found.
func Report(w io.Writer, look Look, report doctor.Report) error {
	if !look.IsFor() {
		return Encode(w, look.Format, report)
	}
	p := &page{Look: look}
	rows := [][]string{{"CHECKED", "OF", "RESULT"}}
	for _, c := range report.Checked {
		result := c.Result
		if !c.OK {
			result = p.warning("! ") + result
		}
		rows = append(rows, []string{c.Name, c.Of, result})
	}
	p.table("", rows)
	p.line("")
	p.problems(report.Problems)
	return p.flush(w)
}
