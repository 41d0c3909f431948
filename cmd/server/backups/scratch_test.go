package backups

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Nothing stays of a drill, and nothing of one that was killed. One that goes on is left alone, and so is what another
// user's link leads to.
func TestNothingStaysOfADrill(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	secret := func(directory string) {
		if err := os.WriteFile(filepath.Join(directory, "secret"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	killed := filepath.Join(temporary, scratchPrefix+"killed")
	if err := os.Mkdir(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	secret(killed)
	elsewhere, link := t.TempDir(), filepath.Join(temporary, scratchPrefix+"link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("it fails")
	err := WithScratch(func(directory string) error {
		secret(directory)
		if err := WithScratch(func(other string) error { secret(other); return nil }); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(directory, "secret")); err != nil {
			t.Errorf("another drill has removed what is in use: %v", err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 1 {
		t.Errorf("%v are left: %v", left, err)
	}
	if there, err := os.ReadDir(elsewhere); err != nil || len(there) > 0 {
		t.Errorf("a drill has made %v where a link leads: %v", there, err)
	}
}
