package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// alone are modules that make test does not compile: they have the versions that their tools come with, or what they
// measure.
var alone = []string{"test/tools/etcdbefore", "test/tools/lint", "test/tools/promtool", "test/tools/conformance", "test/tools/kubernetes", "test/bench", "test/bench/multicluster"}

// versions gives the modules that are tested the root's versions of what they share with it. A module that has another
// version of anything below client-go has all that imports it compiled once more, which takes minutes.
func versions(ctx context.Context, o options) error {
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	t, err := readTree(root)
	if err != nil {
		return err
	}
	want := t.shared()
	for _, m := range t.sorted() {
		if !m.shares() {
			continue
		}
		if err := raise(ctx, m, want); err != nil {
			return err
		}
	}
	return nil
}

// shares tells whether a module has the root's versions. Libraries have the oldest ones that they can do with, and are
// tested and linted with the root's by test/libraries.work.
func (m *mod) shares() bool { return !m.isReleased() && !slices.Contains(alone, m.short) }

// raise gives a module's go.mod the versions that are wanted, until what they bring with them has these, too.
func raise(ctx context.Context, m *mod, want map[string]string) error {
	name := filepath.Join(m.directory, "go.mod")
	here := place{directory: m.directory, env: []string{"GOWORK=off", "GOFLAGS="}}
	for {
		file, err := readModFile(name)
		if err != nil {
			return err
		}
		others := differing(file, want)
		if len(others) == 0 {
			return nil
		}
		for _, r := range others {
			fmt.Printf("%s: %s %s -> %s\n", m.short, r.Mod.Path, r.Mod.Version, want[r.Mod.Path])
			if err := file.AddRequire(r.Mod.Path, want[r.Mod.Path]); err != nil {
				return err
			}
		}
		if err := writeModFile(name, file); err != nil {
			return err
		}
		if err := here.quiet(ctx, "go", "mod", "tidy"); err != nil {
			return err
		}
		if file, err = readModFile(name); err != nil {
			return err
		}
		for _, r := range differing(file, want) {
			if semver.Compare(r.Mod.Version, want[r.Mod.Path]) > 0 {
				return fmt.Errorf("%s needs %s %s, and the root has %s: require an older version of what needs it (go mod graph), or raise the root's", m.short, r.Mod.Path, r.Mod.Version, want[r.Mod.Path])
			}
		}
	}
}

// manager is the example that has what managers of controller-runtime import, which the root does not.
const manager = "examples/manager"

// shared returns the versions that modules have to have in common.
func (t tree) shared() map[string]string {
	want := map[string]string{}
	for _, m := range t {
		if m.short != manager && m.short != "." {
			continue
		}
		for _, r := range m.file.Require {
			if m.short == "." || want[r.Mod.Path] == "" {
				want[r.Mod.Path] = r.Mod.Version
			}
		}
	}
	return want
}

// differing returns what a go.mod requires in another version than is wanted. Our own modules have none.
func differing(file *modfile.File, want map[string]string) (others []*modfile.Require) {
	for _, r := range file.Require {
		if v := want[r.Mod.Path]; v != "" && v != r.Mod.Version && r.Mod.Version != replaced {
			others = append(others, r)
		}
	}
	return others
}
