package conventions

import (
	"io/fs"
	"path/filepath"
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
