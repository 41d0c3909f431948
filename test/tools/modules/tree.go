package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// mod is one module of the repository.
type mod struct {
	short     string // its directory below the root, with slashes; "." for the root
	directory string
	file      *modfile.File
}

// tree has all modules of the repository by path.
type tree map[string]*mod

// isLibrary reports whether programs can take the module without the server.
func (m *mod) isLibrary() bool { return strings.HasPrefix(m.short, "pkg/") }

// isReleased reports whether the module has versions. Tests, tools and examples have none.
func (m *mod) isReleased() bool { return m.isLibrary() || m.short == "." }

func (m *mod) path() string { return m.file.Module.Mod.Path }

// tag returns the name of the tag by which Go finds a version of the module.
func (m *mod) tag(version string) string {
	if m.short == "." {
		return version
	}
	return m.short + "/" + version
}

// readModFile reads a file in the format of a go.mod.
func readModFile(name string) (*modfile.File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

func writeModFile(name string, file *modfile.File) error {
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644) //nolint:gosec // it is public
}

// readTree finds all modules below root.
func readTree(root string) (tree, error) {
	found := tree{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != root && (entry.Name() == "bin" || strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.Name() != "go.mod":
			return nil
		}
		m := &mod{directory: filepath.Dir(name)}
		short, err := filepath.Rel(root, m.directory)
		if err != nil {
			return err
		}
		m.short = filepath.ToSlash(short)
		if m.file, err = readModFile(name); err != nil {
			return err
		}
		found[m.path()] = m
		return nil
	})
	if err == nil && found.root() == nil {
		err = fmt.Errorf("%s has no go.mod: give the root of the repository with -tree", root)
	}
	return found, err
}

func (t tree) root() *mod {
	for _, m := range t {
		if m.short == "." {
			return m
		}
	}
	return nil
}

// released returns the modules that have versions, each behind those that it requires.
func (t tree) released() ([]*mod, error) {
	var order []*mod
	state := map[string]int{} // 1: its requirements are being added, 2: it is added
	var add func(m *mod) error
	add = func(m *mod) error {
		switch state[m.path()] {
		case 1:
			return fmt.Errorf("%s requires itself by way of others: no order of releases is right", m.path())
		case 2:
			return nil
		}
		state[m.path()] = 1
		for _, r := range m.file.Require {
			if needed := t[r.Mod.Path]; needed == nil {
				continue
			} else if !needed.isReleased() {
				return fmt.Errorf("%s requires %s, which is not released", m.path(), r.Mod.Path)
			} else if err := add(needed); err != nil {
				return err
			}
		}
		state[m.path()] = 2
		order = append(order, m)
		return nil
	}
	for _, m := range t.sorted() {
		if m.isReleased() {
			if err := add(m); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

// libraries returns the modules below pkg.
func (t tree) libraries() []*mod {
	return slices.DeleteFunc(t.sorted(), func(m *mod) bool { return !m.isLibrary() })
}

func (t tree) sorted() []*mod {
	var all []*mod
	for _, m := range t {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *mod) int { return strings.Compare(a.short, b.short) })
	return all
}

// copyTree copies what git would commit: files that it has or does not ignore.
func copyTree(ctx context.Context, from, to string) error {
	names, err := place{directory: from}.ask(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(names, "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue // removed, and that is not committed; or a link, which modules do not have
		}
		if err != nil {
			return err
		}
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name), info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // what is copied is public
		return err
	}
	return os.WriteFile(to, text, mode)
}
