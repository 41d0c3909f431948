package conventions

import (
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
		if found := place.Find(readFile(t, name)); found != nil {
			t.Errorf("%s: %s", name, found)
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%v, %d files found", err, files)
	}
}
