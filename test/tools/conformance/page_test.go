package conformance

import (
	"fmt"
	"regexp"
	"strings"
)

// expectation is a row of docs/CONFORMANCE.md.
type expectation struct {
	title   string
	outcome outcome
	says    string // part of what a spec says that fails
}

// cited is what a row has between backticks in its last column.
var cited = regexp.MustCompile("`([^`]+)`")

// readPage reads the tables of a page. The title of a spec is the first column, behind the third-level heading
// above the table, if there is one. Rows whose second column is no outcome are of other tables.
func readPage(content string) (all []expectation, err error) {
	var heading string
	known := map[string]bool{}
	for n, line := range strings.Split(content, "\n") {
		if text, ok := strings.CutPrefix(line, "### "); ok {
			heading = text
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		e := expectation{title: strings.TrimSpace(heading + " " + cells[0]), outcome: outcome(cells[1])}
		if e.outcome != passes && e.outcome != fails {
			continue
		}
		if known[e.title] {
			return nil, fmt.Errorf("line %d: %q is there twice", n+1, e.title)
		}
		known[e.title] = true
		if said := cited.FindStringSubmatch(cells[2]); said != nil {
			e.says = said[1]
		}
		if e.outcome == fails && e.says == "" {
			return nil, fmt.Errorf("line %d: %q fails, but the last column does not cite what it says, between backticks", n+1, e.title)
		}
		all = append(all, e)
	}
	return all, nil
}
