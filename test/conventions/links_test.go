package conventions

import (
	"encoding/xml"
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
	links, headings := 0, map[string][]string{}
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
				continue
			}
			if heading == "" {
				continue
			}
			if headings[target] == nil {
				headings[target] = anchors(t, target)
			}
			if !slices.Contains(headings[target], heading) {
				t.Errorf("%s: %s: there is no such heading", page, found[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found", links)
	}
}

// A picture is well-formed, says in words what it shows, is readable on a dark page, and is shown by a page.
func TestEveryPictureIsShownAndHasWords(t *testing.T) {
	pictures, err := filepath.Glob("../../docs/pictures/*")
	if err != nil || len(pictures) == 0 {
		t.Fatalf("%d pictures, %v", len(pictures), err)
	}
	var shown strings.Builder
	for _, page := range pages(t) {
		shown.WriteString(prose(t, page))
	}
	for _, picture := range pictures {
		shownAs := regexp.MustCompile(`!\[([^\]]+)\]\((?:\.\./|docs/)*pictures/` + regexp.QuoteMeta(filepath.Base(picture)) + `\)`).FindStringSubmatch(shown.String())
		if shownAs == nil {
			t.Errorf("%s: no page shows it", picture)
			continue
		}
		if filepath.Ext(picture) == ".webp" { // of the page: make browser makes it
			if size := len(readFile(t, picture)); size > 120<<10 || len(shownAs[1]) < 50 {
				t.Errorf("%s has %d bytes, and the page that shows it says %q: at most 120 KiB, and words that tell what it shows", picture, size, shownAs[1])
			}
			continue
		}
		var svg struct {
			XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
			Role    string   `xml:"role,attr"`
			Title   string   `xml:"title"`
			Desc    string   `xml:"desc"`
			Style   string   `xml:"style"`
		}
		if err := xml.Unmarshal(readFile(t, picture), &svg); err != nil {
			t.Errorf("%s: %v", picture, err)
		}
		if svg.Role != "img" || svg.Title == "" || len(svg.Desc) < 50 || !strings.Contains(svg.Style, "prefers-color-scheme:dark") {
			t.Errorf(`%s: it needs role="img", a title, a desc that tells what it shows, and colours for dark pages`, picture)
		}
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
