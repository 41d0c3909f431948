package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// An event is one line of test2json (`go doc test2json`).
type event struct {
	Time    time.Time
	Action  string
	Test    string
	Output  string
	Elapsed float64 // seconds

	cpu time.Duration // of the unit so far, if a test begins, pauses, goes on or ends
}

// follow reads events until there are none, and hands each on. A line that is no event comes from a process that writes
// past the tests: it is output.
func follow(from io.Reader, on func(event)) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				e = event{Action: "output", Output: string(line)}
			}
			on(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read what the tests print: %w", err)
		}
	}
}

// framing are the lines that say which test runs. They are no test's output.
func framing(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
