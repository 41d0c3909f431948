package conventions

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A clone must work anywhere, so no file may name a place on somebody's machine.
func TestNoFileNamesAPlaceOnAMachine(t *testing.T) {
	place := regexp.MustCompile(`(^|[^\w.*}>/-])/(root|home|work|Users)/\w`)
	places := []string{"/root/", "/home/", "/work/", "/Users/"}
	files := 0
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", ".regent"}, entry.Name()):
			return filepath.SkipDir
		case !entry.Type().IsRegular(), entry.Name() == ".git": // a file in further work trees
			return nil
		}
		files++
		text := readFile(t, name)
		if !slices.ContainsFunc(places, func(p string) bool { return bytes.Contains(text, []byte(p)) }) {
			return nil // the expression would take seconds for all files
		}
		if found := place.Find(text); found != nil {
			t.Errorf("%s: %s", name, found)
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%v, %d files found", err, files)
	}
}

// compilers are files that call a compiler, with why nobody waits for them in make test.
var compilers = map[string]string{
	"test/built/built.go":                "make test has built everything, and this asks nobody",
	"test/deploy/make_test.go":           "the same",
	"test/e2e/harness/build.go":          "benchmarks call it",
	"test/bench/machine_test.go":         "benchmarks",
	"test/bench/kubernetes_test.go":      "benchmarks",
	"test/bench/multicluster_test.go":    "benchmarks",
	"test/tools/modules/modules_test.go": "modules of a few lines",
}

// A test that compiles takes as long as the compiler, which on a slow machine with a cold build cache is many minutes,
// and counts into the test's time.
func TestNoTestCompiles(t *testing.T) {
	used := map[string]bool{}
	call := regexp.MustCompile(`exec\.Command(Context)?\(([\w.()]+, )?("make"|"go", ("(build|install|run|test|vet)"|append))`)
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", ".regent"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		short := filepath.ToSlash(strings.TrimPrefix(name, "../../"))
		test := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(short, "test/") && !strings.HasPrefix(short, "test/tools/")
		if found := call.Find(readFile(t, name)); test && found != nil {
			if used[short] = true; compilers[short] == "" {
				t.Errorf("%s: %s: have make build it before the tests, and find it with test/built", short, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file := range compilers {
		if !used[file] {
			t.Errorf("%s compiles nothing any more: take it off the list", file)
		}
	}
}
