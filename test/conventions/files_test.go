package conventions

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		case !entry.Type().IsRegular():
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
