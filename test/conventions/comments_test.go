package conventions

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// widest is how many columns a line of a comment may take, of which a tab takes eight. `make fmt` wraps what is wider,
// but for what is indented in a comment.
const widest = 120

// A sentence that does not fit on a screen beside another version of it is not read when it changes.
func TestNoCommentIsWiderThanAScreen(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", ".regent"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasPrefix(entry.Name(), "zz_generated"):
			return nil
		}
		files++
		for n, line := range strings.Split(string(readFile(t, name)), "\n") {
			comment := strings.TrimLeft(line, "\t")
			indent := len(line) - len(comment)
			text, ok := strings.CutPrefix(comment, "//")
			if ok && strings.HasPrefix(strings.TrimLeft(text, "\t"), " ") && 8*indent+utf8.RuneCountInString(comment) > widest {
				t.Errorf("%s:%d is wider than %d columns: make fmt wraps it, or shorten it: %.60s...", name, n+1, widest, comment)
			}
		}
		return nil
	})
	if err != nil || files < 1000 {
		t.Fatalf("%d files: %v", files, err)
	}
}

// Nor is a line of prose in the pages: `make fmt` wraps it. Tables, code, headings, HTML, definitions of links and
// lines with tabs may be wide, and so may a word that cannot be broken, as a span of code.
func TestNoProseIsWiderThanAScreen(t *testing.T) {
	free := regexp.MustCompile(`^ *(?:#+ |\||>|<[a-zA-Z/!]|\[[^\]]+\]: )|\t`)
	span := regexp.MustCompile("`[^`]*`")
	for _, page := range pages(t) {
		content := string(readFile(t, page))
		if strings.HasPrefix(content, "<!-- Generated ") {
			continue
		}
		fenced := false
		for n, line := range strings.Split(content, "\n") {
			if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
				fenced = !fenced
				continue
			}
			words := len(strings.Fields(span.ReplaceAllString(strings.TrimLeft(line, "-*0123456789. "), "_")))
			if !fenced && !free.MatchString(line) && words > 1 && utf8.RuneCountInString(line) > widest {
				t.Errorf("%s:%d is wider than %d columns: make fmt wraps it: %.60s...", page, n+1, widest, line)
			}
		}
	}
}
