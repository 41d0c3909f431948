package main

import (
	"regexp"
	"strings"
)

// leaked begins what goleak says of a goroutine: its stack follows, two lines for each call.
var leaked = regexp.MustCompile(`^[ \[]Goroutine \d+ in state `)

// foldLeaks puts each goroutine that goleak tells of into one line: the functions on its stack, the innermost first,
// and who started it. A reader of a shortened report sees what has leaked, and not only the stack of the first one.
func foldLeaks(text string) string {
	var out strings.Builder
	folding := false
	for line := range strings.Lines(text) {
		call := strings.TrimRight(line, "]\n")
		switch {
		case leaked.MatchString(line):
			if folding {
				out.WriteString("\n")
			}
			folding = true
			out.WriteString(strings.TrimLeft(call, " ["))
		case !folding:
			out.WriteString(line)
		case call == "":
			folding = false
			out.WriteString("\n")
		case strings.HasPrefix(call, "created by "):
			out.WriteString(", " + call)
		case !strings.HasPrefix(call, "\t"): // the other lines are places in files
			if at := strings.LastIndex(call, "("); at > 0 {
				call = call[:at]
			}
			out.WriteString(" < " + call)
		}
	}
	if folding {
		out.WriteString("\n")
	}
	return out.String()
}
