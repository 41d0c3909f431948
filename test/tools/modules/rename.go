package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// rename gives all modules of the repository another path, in each file that names it. Whoever hosts the repository
// decides what it is called.
func rename(ctx context.Context, o options) error {
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	if err := module.CheckPath(o.path); err != nil {
		return fmt.Errorf("-path: want the host and path of the repository, as in example.org/team/regent: %w", err)
	}
	if _, major, _ := module.SplitPathVersion(o.path); major != "" && semver.Major("v"+strings.TrimLeft(major, "/.v")) > "v1" {
		return fmt.Errorf("-path %s: a path with a major version is for v2 and later, and no such version is released", o.path)
	}
	here := place{directory: root}
	if changed, err := here.ask(ctx, "git", "status", "--porcelain"); err != nil || changed != "" {
		return errors.Join(fmt.Errorf("commit first, so that you can go back and see what is changed:\n%s", changed), err)
	}
	t, err := readTree(root)
	if err != nil {
		return err
	}
	was := t.root().path()
	names, err := here.ask(ctx, "git", "grep", "-z", "-l", "-I", "--fixed-strings", "-e", was)
	if err != nil {
		return err
	}
	count := 0
	for name := range strings.SplitSeq(strings.TrimRight(names, "\x00"), "\x00") {
		if err := renameIn(filepath.Join(root, name), was, o.path); err != nil {
			return fmt.Errorf("%s is not changed: %w", name, err)
		}
		count++
	}
	fmt.Printf("%s is now %s, in %d files. Go on with:\n  make fmt generate && make check test\n", was, o.path, count)
	return nil
}

// renameIn replaces a path in a file, and puts what is sorted by it in order again.
func renameIn(file, was, is string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte(was), []byte(is))
	switch {
	case filepath.Base(file) == "go.mod":
		parsed, err := modfile.Parse(file, text, nil)
		if err != nil {
			return err
		}
		parsed.SortBlocks()
		if text, err = parsed.Format(); err != nil {
			return err
		}
	case filepath.Ext(file) == ".go":
		if text, err = format.Source(text); err != nil {
			return err
		}
	}
	return os.WriteFile(file, text, info.Mode().Perm())
}
