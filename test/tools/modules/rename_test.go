package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// committed is a copy of this repository's files with a history of one commit.
func committed(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "copy")
	if err := copyTree(t.Context(), "../../..", root); err != nil {
		t.Fatal(err)
	}
	git(t, root, "init", "-q")
	commitAs(t, root, "as it is")
	return root
}

func commitAs(t *testing.T, root, message string) {
	t.Helper()
	git(t, root, "add", ".")
	git(t, root, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "commit", "-q", "-m", message)
}

// All of this repository follows a new path, and comes back as it was.
func TestOneCommandGivesAllModulesAnotherPath(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=readonly") // and not what is to be built otherwise
	root := committed(t)
	all, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	was, is := all.root().path(), "example.org/"+"another-team/shards" // in parts: it would be found, too
	if err := rename(t.Context(), options{tree: root, path: is}); err != nil {
		t.Fatal(err)
	}
	if left, err := (place{directory: root}).ask(t.Context(), "git", "grep", "-n", "--fixed-strings", "-e", was); err == nil {
		t.Errorf("what still has the old path:\n%s", left)
	}
	renamed, err := readTree(root)
	if err != nil || len(renamed) != len(all) {
		t.Fatalf("%d modules (%v), before %d", len(renamed), err, len(all))
	}
	for _, m := range renamed.sorted() {
		if !strings.HasPrefix(m.path(), is) {
			t.Errorf("%s is called %s", m.short, m.path())
		}
		if !m.isReleased() {
			continue
		}
		if err := (place{directory: m.directory}).quiet(t.Context(), "go", "list", "./..."); err != nil {
			t.Errorf("not all that %s imports is found: %v", m.short, err)
		}
	}
	commitAs(t, root, "another path")
	if err := rename(t.Context(), options{tree: root, path: was}); err != nil {
		t.Fatal(err)
	}
	if changed := git(t, root, "diff", "--stat", "HEAD~1"); changed != "" {
		t.Errorf("there and back again changes files:\n%s", changed)
	}
}

func TestAPathThatNobodyCouldRequireIsRefused(t *testing.T) {
	root := repository(t, nil)
	for path, says := range map[string]string{
		"": "-path", "no host": "-path", "example.org/r/v2": "major version", "https://example.org/r": "-path",
	} {
		if err := rename(t.Context(), options{tree: root, path: path}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("path %q: %v, want %s", path, err, says)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "new.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rename(t.Context(), options{tree: root, path: "example.org/r"}); err == nil || !strings.Contains(err.Error(), "commit first") {
		t.Errorf("what is not committed could be lost: %v", err)
	}
}
