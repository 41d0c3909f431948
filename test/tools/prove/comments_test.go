package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestCodeIsTheSameWhateverItsCommentsSay(t *testing.T) {
	const code = "package a\n\n// b is.\nvar b = 1 // one\n"
	for name, c := range map[string]struct {
		other string
		same  bool
	}{
		"itself":                {code, true},
		"another comment":       {"package a\n\n// b is\n// wrapped.\nvar b = 1\n", true},
		"another layout":        {"package a\nvar b   =   1", true},
		"another value":         {"package a\n\n// b is.\nvar b = 2 // one\n", false},
		"another string":        {"package a\n\nvar b = \"1\"\n", false},
		"a directive, and more": {"package a\n\n//go:embed c\nvar b = 1 // one\n", false},
		"something more":        {code + "var c = 1\n", false},
		"what is no code":       {"package", false},
	} {
		if got := sameCode([]byte(code), []byte(c.other)); got != c.same {
			t.Errorf("%s: the same: %t", name, got)
		}
	}
}

// A file that only says something else is not touched; one that is new, is gone, or is no Go file is.
func TestAChangeOfCommentsTouchesNothing(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = root
		command.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "-q")
	put("said.go", "package a // one\n")
	put("done.go", "package a\n\nvar b = 1\n")
	put("gone.go", "package a\n")
	put("page.md", "one\n")
	run("add", "-A")
	run("commit", "-qm", "one")
	put("said.go", "// Package a is.\npackage a\n")
	put("done.go", "package a\n\nvar b = 2\n")
	put("new.go", "package a\n")
	put("page.md", "two\n")
	if err := os.Remove(filepath.Join(root, "gone.go")); err != nil {
		t.Fatal(err)
	}
	files := []string{"done.go", "gone.go", "new.go", "page.md", "said.go"}
	got, err := withoutCommented(t.Context(), root, "HEAD", files)
	if want := []string{"done.go", "gone.go", "new.go", "page.md"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("touched are %q, %v, want %q", got, err, want)
	}
}
