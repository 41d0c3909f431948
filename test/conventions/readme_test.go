package conventions

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the pages for programmers show compiles, because it is part of an example that does.
func TestTheCodeInTheDocsForBuildersIsFromExamples(t *testing.T) {
	examples := map[string][]string{
		"../../docs/PROVIDE.md":    {"../../examples/widgets/cmd/main.go"},
		"../../docs/REGENTTEST.md": {"../../pkg/regenttest/first_test.go", "../../examples/widgets/internal/controller/widget_controller_test.go"},
		"../../docs/EMBED.md": {
			"../../examples/leader/shortest/main.go", "../../examples/manager/cmd/main.go", "../../pkg/election/clientgo/example_test.go",
			"../../pkg/election/control/example_test.go", "../../pkg/election/join/example_test.go", "../../pkg/election/metrics/example_test.go", "../../examples/apiserver/lead/lead.go",
		},
	}
	for page, files := range examples {
		var code strings.Builder
		for _, file := range files {
			code.WriteString(flat(string(readFile(t, file))))
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readFile(t, page)), -1)
		if len(blocks) == 0 {
			t.Errorf("no code in %s", page)
		}
		for _, block := range blocks {
			if !strings.Contains(code.String(), strings.TrimPrefix(flat(block[1]), "package hello\n")) {
				t.Errorf("%s: not in an example:\n%s", page, block[1])
			}
		}
	}
}

// The program that EMBED.md begins with is a whole one, and so is the test that REGENTTEST.md begins with, which has
// another package in its reader's directory.
func TestTheShortestProgramIsShownWhole(t *testing.T) {
	for _, of := range []struct{ page, file, clause, shown string }{
		{"docs/EMBED.md", "examples/leader/shortest/main.go", "package main\n", "package main\n"},
		{"docs/REGENTTEST.md", "pkg/regenttest/first_test.go", "package regenttest_test\n", "package hello\n"},
	} {
		_, program, found := strings.Cut(string(readFile(t, "../../"+of.file)), of.clause)
		if !found || !strings.Contains(string(readFile(t, "../../"+of.page)), "```go\n"+of.shown+program+"```\n") {
			t.Errorf("%s does not show all of %s", of.page, of.file)
		}
	}
}

// What a sample-apiserver and a manager of controller-runtime gain is as short as EMBED.md promises, in lines of
// code that they would not have otherwise.
func TestAdoptionTakesFewLines(t *testing.T) {
	for _, of := range []struct {
		file, from, to string
		atMost         int
	}{
		{"../../examples/apiserver/lead/lead.go", "package lead", "", 60},
		{"../../examples/manager/cmd/main.go", "election, err := leader.New", "return process.Start", 40},
	} {
		code := string(readFile(t, of.file))
		_, code, found := strings.Cut(code, of.from)
		if of.to != "" && found {
			code, _, found = strings.Cut(code, of.to)
		}
		lines := 0
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
		if !found || lines == 0 || lines > of.atMost {
			t.Errorf("%s: %d lines of code, want at most %d (found: %v)", of.file, lines, of.atMost, found)
		}
	}
}

// Each point of KEP-5366 is held by tests that exist, where CLIENT-GO.md says they are.
func TestEachPointOfTheKEPIsHeldByATest(t *testing.T) {
	directories := map[string]string{"perterm": "../../pkg/election/perterm", "join": "../../pkg/election/join", "leader": "../../pkg/election/leader",
		"clientgo": "../../pkg/election/clientgo", "election": "../../pkg/election", "control": "../../pkg/election/control",
		"supervisor": "../../pkg/election/control/supervisor", "server": "../../pkg/server", "admission": "../../pkg/server/apis/admission", "test/e2e": "../e2e", "test/embed": "../embed", "examples/manager": "../../examples/manager/cmd"}
	_, table, found := strings.Cut(string(readFile(t, "../../docs/CLIENT-GO.md")), "| what the KEP asks | what the packages do | held by |\n|---|---|---|\n")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if !found || len(lines) < 12 {
		t.Fatalf("the table has %d lines", len(lines))
	}
	for _, line := range lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 3 {
			t.Errorf("%q has %d cells", line, len(cells))
			continue
		}
		held := 0
		for part := range strings.SplitSeq(cells[2], "; ") {
			where, names, _ := strings.Cut(part, ": ")
			where = strings.Trim(where, "`")
			var tests strings.Builder
			files, err := filepath.Glob(directories[where] + "/*_test.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				tests.Write(readFile(t, file))
			}
			for name := range strings.SplitSeq(names, ", ") {
				if held++; !strings.Contains(tests.String(), "\nfunc "+name+"(") {
					t.Errorf("%s: there is no %s in %q", cells[0], name, where)
				}
			}
		}
		if held == 0 {
			t.Errorf("%s is held by no test", cells[0])
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
