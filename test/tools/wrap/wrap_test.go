package main

import (
	"strings"
	"testing"
)

const words = "a paragraph that is so long that it does not fit, "

func TestOnlyWhatIsTooWideIsWrapped(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat(words, 4))
	for name, c := range map[string]struct {
		source string
		lines  int // how many there are then
	}{
		"a narrow comment":                 {"// a\n// b\nvar a int", 3},
		"a wide one":                       {"// " + long + "\nvar a int", 3},
		"a wide one that goes on":          {"// " + long + "\n// and on.\nvar a int", 3},
		"two paragraphs":                   {"// " + long + "\n//\n// b\nvar a int", 5},
		"a list":                           {"//   - " + long + "\n//   - b\nvar a int", 4},
		"a table":                          {"//\t" + long + "\nvar a int", 2},
		"a directive":                      {"//go:generate " + long + "\nvar a int", 2},
		"an indented one":                  {"func a() {\n\t\t// " + long + "\n}", 4},
		"behind code":                      {"var a int // " + long, 3},
		"behind code, for a linter":        {"var a int //nolint:gosec // " + long, 1},
		"a raw string":                     {"var a = `\n// " + long + "\n`", 3},
		"a string with slashes":            {`var a = "https://` + strings.ReplaceAll(long, " ", "/") + `"`, 1},
		"a string with a quote before one": {`var a = "\"" // ` + long, 3},
	} {
		got := wrapComments(c.source)
		lines := strings.Split(got, "\n")
		if len(lines) != c.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", name, len(lines), c.lines, got)
		}
		if strings.Join(strings.Fields(strings.ReplaceAll(got, "//", " ")), " ") == "" {
			t.Errorf("%s: nothing is left", name)
		}
		if again := wrapComments(got); again != got {
			t.Errorf("%s: wrapped again it is another:\n%s\n%s", name, got, again)
		}
	}
}

// Whatever is wrapped has the words that it had, in their order.
func FuzzNoWordIsLost(f *testing.F) {
	f.Add("// " + strings.Repeat(words, 5) + "\n//   - " + strings.Repeat(words, 5) + "\nvar a int")
	f.Fuzz(func(t *testing.T, source string) {
		count := func(s string) (n int) {
			for _, field := range strings.Fields(s) {
				if strings.Trim(field, "/") != "" {
					n++
				}
			}
			return n
		}
		if got := wrapComments(source); count(got) != count(source) && !strings.Contains(source, "\r") {
			t.Errorf("%q becomes %q", source, got)
		}
	})
}
