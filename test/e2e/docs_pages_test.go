package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a block of code in the documentation, or a command within its text.
type block struct {
	page, heading string
	language      string
	text          string
	file          string // which file the page says to put it into
}

// String names a block: "docs/CLI.md ## status: regent status -o json".
func (b block) String() string {
	first, _, _ := strings.Cut(b.text, "\n")
	return b.page + " " + b.heading + ": " + strings.TrimPrefix(first, "$ ")
}

// isTyped reports whether readers type what is in the block.
func (b block) isTyped() bool { return b.language == "sh" || b.language == "console" }

// step is what is typed at once, and the lines that are shown as the answer.
type step struct {
	script  string
	answers []string
}

// steps returns the commands of a block. What is in sh is one step, because it has no answers between.
func (b block) steps() []step {
	if b.language == "sh" {
		return []step{{script: b.text}}
	}
	var steps []step
	goesOn := false
	for line := range strings.Lines(b.text) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		if isCommand || len(steps) == 0 {
			steps = append(steps, step{})
		}
		last := &steps[len(steps)-1]
		switch {
		case isCommand || goesOn:
			last.script += command
			goesOn = strings.HasSuffix(strings.TrimSpace(line), `\`)
		case strings.TrimSpace(line) != "":
			last.answers = append(last.answers, strings.TrimSpace(line))
		}
	}
	return steps
}

// languages are those that a block of the documentation may be in. What is in sh and console is typed; text is what a
// program says.
var languages = []string{"sh", "console", "text", "go", "yaml", "json", "mermaid"}

var (
	codeFence  = regexp.MustCompile("^( *)```(.*)$")
	headline   = regexp.MustCompile(`^#+ `)
	listed     = regexp.MustCompile(`^([-*]|\d+\.) `)
	inTheText  = regexp.MustCompile("`((?:regent|kubectl) [^`]+)`")
	putInto    = regexp.MustCompile("Put this into `([\\w.]+)`")
	pagesOfAll = []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"}
	// runbooks are the pages on which commands in the text are for operators to type, too.
	runbooks = []string{"docs/OPERATIONS.md", "docs/reference/alerts.md"}
)

// inText is in the place of the heading of commands in the text, since the same command is in many sections.
const inText = "(in the text)"

// documented returns all blocks of the documentation, in the order of its pages. The commands in the text of the
// runbooks are among them.
func documented(t *testing.T) (blocks []block) {
	t.Helper()
	for _, pattern := range pagesOfAll {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, blocksOf(t, strings.TrimPrefix(filepath.ToSlash(file), "../../"), string(content))...)
		}
	}
	return blocks
}

func blocksOf(t *testing.T, page, content string) (blocks []block) {
	t.Helper()
	at, open, indent, inList, blank := block{page: page}, false, "", false, false
	for line := range strings.Lines(content) {
		line = strings.TrimRight(line, "\n")
		match := codeFence.FindStringSubmatch(line)
		switch {
		case match != nil && !open:
			open, indent, at.language, at.text = true, match[1], match[2], ""
			if !slices.Contains(languages, at.language) {
				t.Errorf("%s %s: a block of code is in %q: say which language it is in, one of %q", page, at.heading, at.language, languages)
			}
		case match != nil:
			open, blocks, at.file = false, append(blocks, at), ""
		case open:
			at.text += strings.TrimPrefix(line, indent) + "\n"
		case headline.MatchString(line):
			at.heading = line
		case putInto.MatchString(line):
			at.file = putInto.FindStringSubmatch(line)[1]
		case strings.HasPrefix(line, "    ") && blank && !inList:
			t.Errorf("%s %s: %q is indented: put code between lines of three backquotes, and say its language", page, at.heading, line)
		case slices.Contains(runbooks, page):
			for _, command := range inTheText.FindAllStringSubmatch(line, -1) {
				if b := (block{page: page, heading: inText, language: "sh", text: command[1]}); !slices.Contains(blocks, b) {
					blocks = append(blocks, b)
				}
			}
		}
		if blank = line == ""; !blank && !strings.HasPrefix(line, " ") {
			inList = listed.MatchString(line)
		}
	}
	return blocks
}
