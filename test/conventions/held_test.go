package conventions

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName is how pages name tests, fuzz tests and benchmarks: in several words, without what Go puts before them.
var testName = regexp.MustCompile(`\b(?:I\d+)?(?:[A-Z][a-z]+|A){4,}(?:I\d+)?\b`)

// The tests that pages give as proof exist. A page may leave out the end of a long name.
func TestTheTestsThatThePagesNameExist(t *testing.T) {
	var all strings.Builder
	declared := regexp.MustCompile(`(?m)^func (?:Test|Fuzz|Benchmark)(\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && path != "../..") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range declared.FindAllSubmatch(readFile(t, path), -1) {
				all.WriteString("\n" + string(m[1]))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, atLeast := range map[string]int{"INVARIANTS.md": 100, "UPGRADE.md": 9, "SHARDS.md": 8} {
		found := 0
		for _, name := range testName.FindAllString(string(readFile(t, "../../docs/"+page)), -1) {
			name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "Test"), "Fuzz"), "Benchmark")
			if !testName.MatchString(name) {
				continue
			}
			if found++; !strings.Contains(all.String(), "\n"+name) {
				t.Errorf("%s: there is no test %s", page, name)
			}
		}
		if found < atLeast {
			t.Errorf("%s names %d tests", page, found)
		}
	}
}
