package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linesOf returns the lines of a file that are no comments.
func linesOf(t *testing.T, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// changed is what a program that was written for the last release has to change, below test/releases. A release begins
// it anew.
const changed = "changed.txt"

// A program that is compiled with the last release is compiled with this tree, too, or what it has to change is told.
func TestLibrariesExportWhatTheLastReleaseDid(t *testing.T) {
	const root = "../../.."
	releases := filepath.Join(root, filepath.Dir(record))
	kept, err := filepath.Glob(filepath.Join(releases, "v*", apiFile))
	if err != nil || len(kept) != len(linesOf(t, filepath.Join(root, record))) {
		t.Fatalf("%d releases say what they export (%v), of those in %s: make release-data writes it", len(kept), err, record)
	}
	newest := ""
	for _, line := range linesOf(t, filepath.Join(root, record)) {
		newest, _, _ = strings.Cut(line, " ")
	}
	now, err := exported(root)
	if err != nil {
		t.Fatal(err)
	}
	told := linesOf(t, filepath.Join(releases, changed))
	for _, line := range linesOf(t, filepath.Join(releases, newest, apiFile)) {
		is := slices.Contains(now, line)
		switch {
		case !is && !slices.Contains(told, line):
			t.Errorf("%s has had this, and the tree has not: keep it; or, if that is worth a minor version, add it to test/releases/%s, and say in CHANGELOG.md what to do instead:\n%s", newest, changed, line)
		case is && slices.Contains(told, line):
			t.Errorf("test/releases/%s has this, and it has not changed:\n%s", changed, line)
		}
	}
}

func TestWhatCanKeepAProgramFromBeingCompiledIsALine(t *testing.T) {
	root := repository(t, map[string]string{
		"pkg/a/a.go": "// Package a is one.\npackage a\n\nimport \"io\"\n\n" +
			"const Limit, hidden = 10, 20\n\nvar Zero, zero int\n\n" +
			"type (\n\tT struct {\n\t\tA, B int\n\t\tio.Reader\n\t\tc bool\n\t}\n\tI interface {\n\t\tB(n int)\n\t\tA() (s string, err error)\n\t\tio.Writer\n\t}\n" +
			"\tF func(of []string) (ok bool)\n\tAlias = io.Reader\n\tG[K comparable, V any] map[K]V\n\tprivate struct{}\n)\n\n" +
			"func New[K comparable](a, b K, more ...string) (t *T, err error) { return nil, nil }\nfunc unexported() {}\n" +
			"func (t *T) Do(yield func(n int) bool) {}\nfunc (t T) do() {}\nfunc (private) Do() {}\nfunc (g G[K, V]) Len() int { return 0 }\n",
		"pkg/a/other_windows.go":   "package a\n\nfunc Windows() {}\n",
		"pkg/a/cmd/program/m.go":   "package main\n\nfunc Main() {}\n\nfunc main() {}\n",
		"pkg/a/internal/i/more.go": "package i\n\nfunc Internal() {}\n",
	})
	got, err := exported(root)
	if err != nil {
		t.Fatal(err)
	}
	got = slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, "pkg/a: ") })
	want := []string{
		"const Limit = 10", "func (*T) Do(func(int) bool)", "func (G[K, V]) Len() int", "func New[K comparable](K, K, ...string) (*T, error)",
		"type Alias = io.Reader", "type F func([]string) bool", "type G[K comparable, V any] map[K]V", "type I interface{ A() (string, error); B(int); io.Writer }",
		"type T struct", "type T struct: A int", "type T struct: B int", "type T struct: embeds io.Reader", "var Zero int",
	}
	for n := range want {
		want[n] = "pkg/a: " + want[n]
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
