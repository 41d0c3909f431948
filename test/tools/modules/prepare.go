package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// replaced is the version that go.mod files name where a replace says which directory is meant.
const replaced = "v0.0.0-00010101000000-000000000000"

// prepare turns a copy of the repository into what is tagged: the modules that have versions require each other by
// version, and replace nothing. It writes what a module proxy would serve below proxy. Nothing is asked of the network
// that was not built with before.
func prepare(ctx context.Context, root, version, proxy string) (tree, error) {
	t, err := readTree(root)
	if err != nil {
		return nil, err
	}
	order, err := t.released()
	if err != nil {
		return nil, err
	}
	sums := map[string][]string{} // lines of go.sum, by module
	for _, m := range order {
		if m.isLibrary() {
			if err := license(root, m); err != nil {
				return nil, err
			}
			if err := t.lighten(ctx, m); err != nil {
				return nil, err
			}
		}
		if err := t.pin(m, version, sums); err != nil {
			return nil, err
		}
		if sums[m.path()], err = pack(m, version, proxy); err != nil {
			return nil, err
		}
	}
	// The others find the directories as before, and agree with them on the version.
	for _, m := range t.sorted() {
		if m.isReleased() {
			continue
		}
		if err := t.setVersions(m.file, version); err != nil {
			return nil, err
		}
		if err := writeModFile(filepath.Join(m.directory, "go.mod"), m.file); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// license gives a library the repository's license. Go's proxy does so, too, and the checksum has to be the same.
func license(root string, m *mod) error {
	to := filepath.Join(m.directory, "LICENSE")
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return copyFile(filepath.Join(root, "LICENSE"), to, 0o644)
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// pin has a module require the others by version, and replace none, in go.mod and, if it has one, in go.whole.mod.
func (t tree) pin(m *mod, version string, sums map[string][]string) error {
	names := []string{"go"}
	if exists(filepath.Join(m.directory, whole+".mod")) {
		names = append(names, whole)
	}
	for _, name := range names {
		name = filepath.Join(m.directory, name)
		file, err := readModFile(name + ".mod")
		if err != nil {
			return err
		}
		if err := t.setVersions(file, version); err != nil {
			return err
		}
		if err := t.dropReplaces(file); err != nil {
			return err
		}
		if err := writeModFile(name+".mod", file); err != nil {
			return err
		}
		if err := addSums(name+".sum", file, sums); err != nil {
			return err
		}
	}
	return nil
}

// dropReplaces takes out the replaces by directories of the repository. Another would keep people from installing the
// server.
func (t tree) dropReplaces(file *modfile.File) error {
	for _, r := range slices.Clone(file.Replace) {
		if t[r.Old.Path] == nil {
			return fmt.Errorf("%s replaces %s: nobody could install it", file.Module.Mod.Path, r.Old.Path)
		}
		if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	return nil
}

// setVersions has a module require the version of those of the repository.
func (t tree) setVersions(file *modfile.File, version string) error {
	for _, r := range file.Require {
		if t[r.Mod.Path] == nil {
			continue
		}
		if r.Mod.Version != replaced {
			return fmt.Errorf("%s requires %s %s: in the repository it has to be %s", file.Module.Mod.Path, r.Mod.Path, r.Mod.Version, replaced)
		}
		if err := file.AddRequire(r.Mod.Path, version); err != nil {
			return err
		}
	}
	return nil
}

// addSums adds the checksums of the modules of the repository that a module requires.
func addSums(name string, file *modfile.File, sums map[string][]string) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := slices.Collect(strings.Lines(string(text)))
	for _, r := range file.Require {
		lines = append(lines, sums[r.Mod.Path]...)
	}
	if len(lines) == 0 {
		return nil // it requires nothing
	}
	slices.SortFunc(lines, compareSums)
	return os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644) //nolint:gosec // it is public
}
