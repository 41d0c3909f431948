package main

import (
	"fmt"
	"strings"
)

// tail keeps of an output what a reader looks at: what tests say of themselves, all of it, and of logs the last lines.
type tail struct {
	lines []string
	said  int // lines by tests
	gone  int // lines of logs that were left out
	logs  int // lines of logs that are kept
}

// logLines is how many lines of logs are kept.
const logLines = 60

// add adds a piece of output: a line, or its beginning.
func (t *tail) add(piece string) {
	if n := len(t.lines); n > 0 && !strings.HasSuffix(t.lines[n-1], "\n") {
		t.lines[n-1] += piece
		return
	}
	t.lines = append(t.lines, piece)
	if isSaid(piece) {
		t.said++
		return
	}
	if t.logs++; t.logs > 2*logLines {
		t.cut()
	}
}

// cut leaves out the older half of the lines of logs.
func (t *tail) cut() {
	kept := t.lines[:0]
	out := t.logs - logLines
	for _, line := range t.lines {
		if out > 0 && !isSaid(line) {
			out--
			t.gone++
			t.logs--
			continue
		}
		kept = append(kept, line)
	}
	clear(t.lines[len(kept):])
	t.lines = kept
}

// isSaid tells lines that package testing writes for a test, and what continues them, from logs: they are indented. Of
// what goleak tells, who is there and who has started it is no log either.
func isSaid(line string) bool {
	return leaked.MatchString(line) || strings.HasPrefix(line, "created by ") || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "WARNING: DATA RACE")
}

// says tells whether a test has said anything besides its result.
func (t *tail) says() bool {
	for _, line := range t.lines {
		if trimmed := strings.TrimSpace(line); isSaid(line) && !strings.HasPrefix(trimmed, "--- ") {
			return true
		}
	}
	return false
}

func (t *tail) text() string {
	text := strings.Join(t.lines, "")
	if t.gone > 0 {
		text = fmt.Sprintf("(%d earlier lines of logs are left out)\n", t.gone) + text
	}
	return text
}
