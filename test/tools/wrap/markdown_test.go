package main

import (
	"strings"
	"testing"
)

func TestOnlyProseOfMarkdownIsWrapped(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat(words, 4))
	half := long[:113]
	for name, c := range map[string]struct {
		page string
		want string // empty: as it was
	}{
		"a narrow paragraph":       {page: "a\nb"},
		"a heading":                {page: "# " + long},
		"a table":                  {page: "| a |\n|---|\n| " + long + " |"},
		"a block of code":          {page: "```sh\n" + long + "\n```"},
		"one in an item":           {page: "1. a\n\n   ```sh\n   " + long + "\n   ```"},
		"an indented one":          {page: "a\n\n    " + long},
		"HTML":                     {page: "<!-- " + long + " -->"},
		"a definition of a link":   {page: "[a]: https://" + strings.ReplaceAll(long, " ", "/")},
		"front matter":             {page: "---\ntitle: " + long + "\n---\n\na"},
		"one word":                 {page: "a\n\n" + strings.ReplaceAll(long, " ", "/")},
		"a span of code":           {page: "`" + long + "`"},
		"a paragraph":              {page: half + " " + half, want: half + " a\n" + half[2:]},
		"an item":                  {page: "- " + half + " " + half, want: "- " + half + " a\n  " + half[2:]},
		"one with a number":        {page: "10. " + half + " " + half, want: "10. " + half + " a\n    " + half[2:]},
		"one in an item's item":    {page: "- a\n  - " + half + " " + half, want: "- a\n  - " + half + " a\n    " + half[2:]},
		"an item's second part":    {page: "- a\n\n  " + half + " " + half, want: "- a\n\n  " + half + " a\n  " + half[2:]},
		"a list below a paragraph": {page: half + " " + half + "\n- b", want: half + " a\n" + half[2:] + "\n- b"},
		"a span that would break":  {page: half + " `" + half + "`", want: half + "\n`" + half + "`"},
		"a dash that would begin a line": {
			page: strings.Repeat("a", 119) + " - " + half, want: strings.Repeat("a", 119) + " -\n" + half,
		},
		"a break that readers see": {page: half + " " + half + "  \nb", want: half + " a\n" + half[2:] + "  \nb"},
	} {
		if c.want == "" {
			c.want = c.page
		}
		got := wrapMarkdown(c.page)
		if got != c.want {
			t.Errorf("%s: %q becomes\n%q, want\n%q", name, c.page, got, c.want)
		}
		if again := wrapMarkdown(got); again != got {
			t.Errorf("%s: wrapped again it is another:\n%s\n%s", name, got, again)
		}
	}
}

// Whatever is wrapped has the characters that it had, in their order, and is not wrapped again.
func FuzzNoWordOfMarkdownIsLost(f *testing.F) {
	f.Add("- " + strings.Repeat(words, 5) + "`a  b` 1. \n\n  " + strings.Repeat(words, 5) + "\n```\na")
	f.Fuzz(func(t *testing.T, page string) {
		if strings.ContainsAny(page, "\r\v\f\u0085\u00a0") {
			return
		}
		got := wrapMarkdown(page)
		if strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(page), "") {
			t.Errorf("%q becomes %q", page, got)
		}
		if again := wrapMarkdown(got); again != got {
			t.Errorf("%q, wrapped again, becomes %q", got, again)
		}
	})
}
