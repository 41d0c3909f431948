package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/controllers/catalog"
)

var (
	// code matches blocks of commands, and code in the text.
	code = regexp.MustCompile("(?ms)^ *```(?:sh|console)\n(.*?)^ *```|`([^`\n]+)`")
	// anotherFence matches blocks of other code.
	anotherFence = regexp.MustCompile("(?ms)^ *```(?:text|yaml|go|json|mermaid)\n.*?^ *```")
	called       = regexp.MustCompile(`(?m)(?:^|[^n\w-] |[(;"])(?:bin/|kubectl )?regent ([a-z][^|;>#)\n]*)`)
	flagged      = regexp.MustCompile(`--([a-z][a-z-]*)`)
)

// Every command of regent that the documentation names exists, with the flags that it is shown with, whether a test
// runs it or not.
func TestTheDocsNameNoCommandOrFlagThatDoesNotExist(t *testing.T) {
	found := 0
	for _, pattern := range []string{"../../../README.md", "../../../docs/*.md", "../../../examples/*/README.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text := anotherFence.ReplaceAllString(strings.ReplaceAll(string(content), "\\\n", " "), "")
			for _, piece := range code.FindAllStringSubmatch(text, -1) {
				for _, command := range called.FindAllStringSubmatch(piece[1]+piece[2], -1) {
					found++
					if fault := faultOf(command[1]); fault != "" {
						t.Errorf("%s: regent %s: %s", filepath.Base(file), strings.TrimSpace(command[1]), fault)
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d commands were found", found)
	}
}

// undocumented are commands that need no page: the reference has them.
var undocumented = []string{"version"}

// Every command that users see is on a page written by hand, with what it is for.
func TestTheDocsNameEachCommand(t *testing.T) {
	var text strings.Builder
	files, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	for _, cmd := range commands(newCommand()) {
		if slices.Contains(undocumented, cmd.Name()) || cmd.HasAvailableSubCommands() {
			continue
		}
		if !strings.Contains(text.String(), cmd.CommandPath()) {
			t.Errorf("no page of docs names `%s`", cmd.CommandPath())
		}
	}
}

// running matches how many controllers run, in a sample or a sentence.
var running = regexp.MustCompile(`(?i)\b(\d+|ten|eleven|twelve|thirteen) (?:running  |controllers run\b)`)

// Samples and sentences of the docs, and pictures, say how many controllers there are.
func TestTheDocsKnowHowManyControllersThereAre(t *testing.T) {
	registry, err := catalog.Registry()
	if err != nil {
		t.Fatal(err)
	}
	want, found := len(registry.Names()), 0
	word, ok := map[int]string{10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen"}[want]
	if !ok {
		t.Fatalf("what is %d in words?", want)
	}
	for _, pattern := range []string{"../../../README.md", "../../../docs/*.md", "../../../docs/pictures/*.svg", "../../../examples/*/README.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range running.FindAllStringSubmatch(string(content), -1) {
				if found++; match[1] != fmt.Sprint(want) && !strings.EqualFold(match[1], word) {
					t.Errorf("%s: %q, there are %d", file, match[0], want)
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d places were found", found)
	}
}

// faultOf returns what is wrong with a command line.
func faultOf(line string) string {
	line, _, _ = strings.Cut(line, " -- ") // what follows is for other commands
	root := newCommand()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(strings.Fields(line))
	if err != nil {
		return err.Error()
	}
	if cmd.HasAvailableSubCommands() && len(rest) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(rest[0]) {
		return "there is no " + rest[0] + " below it"
	}
	for _, flag := range flagged.FindAllStringSubmatch(line, -1) {
		if flag[1] != "help" && cmd.Flags().Lookup(flag[1]) == nil && cmd.InheritedFlags().Lookup(flag[1]) == nil {
			return "it has no flag --" + flag[1]
		}
	}
	return ""
}
