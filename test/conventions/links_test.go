package conventions

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A link to a file or to a heading leads somewhere.
func TestEveryLinkInTheDocsLeadsSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			name, heading, _ := strings.Cut(found[1], "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: there is no such file", page, found[1])
			} else if heading != "" && !slices.Contains(anchors(t, target), heading) {
				t.Errorf("%s: %s: there is no such heading", page, found[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// Whoever reads docs/README.md gets to each page of docs.
func TestTheStartPageLeadsToEveryPage(t *testing.T) {
	start := string(readFile(t, "../../docs/README.md"))
	for _, page := range pages(t) {
		rel, err := filepath.Rel("../../docs", page)
		if err != nil {
			t.Fatal(err)
		}
		if rel != "README.md" && !strings.HasPrefix(rel, "..") && !strings.Contains(start, "]("+filepath.ToSlash(rel)) {
			t.Errorf("docs/README.md does not lead to docs/%s", rel)
		}
	}
}

// pages returns all pages of Markdown.
func pages(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains([]string{".git", "bin", ".regent"}, entry.Name()) {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(name) == ".md" {
			out = append(out, name)
		}
		return err
	})
	if err != nil || len(out) < 10 {
		t.Fatalf("%v, %d pages found", err, len(out))
	}
	return out
}

// prose returns a page without blocks and spans of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text := regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(string(readFile(t, page)), "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
}

// anchors returns how links name the headings of a page, as GitHub makes them.
func anchors(t *testing.T, page string) (out []string) {
	t.Helper()
	text := regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(string(readFile(t, page)), "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading[1], "$1")
		name = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(strings.ToLower(name), "")
		out = append(out, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return out
}
