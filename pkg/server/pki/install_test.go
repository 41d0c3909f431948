package pki

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A mounted Secret has a hidden directory with the files, which the group may read, and links to them.
func newSecret(t *testing.T, files map[string]string) string {
	t.Helper()
	mount := t.TempDir()
	if err := os.MkdirAll(filepath.Join(mount, "..2026_01_31"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026_01_31", filepath.Join(mount, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(mount, "..data", name), []byte(content), 0o440); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	return mount
}

func TestKeysOfAMountedSecretCanBeUsedOnceInstalled(t *testing.T) {
	directory := newDirectory(t)
	made, files := ensure(t, directory), map[string]string{}
	for _, name := range []string{CACertFile, CAKeyFile} {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(content)
	}
	mount, to := newSecret(t, files), filepath.Join(t.TempDir(), "root", "pki")
	for range 2 { // the second time the container was restarted
		if err := Install(mount, to); err != nil {
			t.Fatal(err)
		}
	}
	if installed := ensure(t, to); !installed.CA().Equal(made.CA()) {
		t.Error("another authority")
	}
	for name := range files {
		info, err := os.Lstat(filepath.Join(to, name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, err := os.Lstat(filepath.Join(to, "..data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is hidden was copied: %v", err)
	}
}

func TestNothingIsInstalledWhereOthersMayWriteOrFromNothing(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := Install(newSecret(t, map[string]string{CAKeyFile: "secret"}), open); err == nil {
		t.Error("installed where others may write")
	}
	if err := Install(newSecret(t, nil), newDirectory(t)); !errors.Is(err, errNothing) {
		t.Errorf("from an empty Secret: %v", err)
	}
	if err := Install(filepath.Join(open, "absent"), newDirectory(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("from nowhere: %v", err)
	}
}
