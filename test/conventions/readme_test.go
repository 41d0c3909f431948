package conventions

import (
	"regexp"
	"strings"
	"testing"
)

// What README.md shows compiles, because it is part of an example that does.
func TestTheCodeInTheReadmeIsFromExamples(t *testing.T) {
	var examples string
	for _, file := range []string{"../../pkg/server/options/example_test.go", "../../pkg/election/example_test.go", "../../examples/fenced-controller/candidate.go"} {
		examples += flat(string(readFile(t, file)))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readFile(t, "../../README.md")), -1)
	if len(blocks) == 0 {
		t.Fatal("no code in README.md")
	}
	for _, block := range blocks {
		if !strings.Contains(examples, flat(block[1])) {
			t.Errorf("not in an example:\n%s", block[1])
		}
	}
}

// flat is text without its indentation.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
