package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// whole is what the go.mod is called, without .mod, that a library has in the repository, where a release has a lighter
// one.
const whole = "go.whole"

// propertyTests is how files of tests end whose modules nothing else needs. They stay in the repository,
// so they may have no helper that other tests use.
const propertyTests = "property_test.go"

// lighten takes out of a library's go.mod what only old versions of Kubernetes or property tests need, because each
// program that requires the library has all modules in it in its graph. A program with these versions has them from
// there. The go.mod as it was is kept as go.whole.mod, by which the library's other tests run: go test
// -modfile=go.whole.mod ./...
func (t tree) lighten(ctx context.Context, m *mod) error {
	if err := m.dropPropertyTests(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	versions := map[string]string{}
	for _, r := range m.file.Require {
		if version := versionOf(t.root().file, r.Mod.Path); version != "" && strings.HasPrefix(r.Mod.Path, "k8s.io/") {
			versions[r.Mod.Path] = version
		}
	}
	name := filepath.Join(scratch, "go.mod")
	if err := m.writeWith(name, versions); err != nil {
		return err
	}
	if err := (place{directory: m.directory, env: []string{"GOWORK=off", "GOFLAGS="}}).quiet(ctx, "go", "mod", "tidy", "-modfile="+name); err != nil {
		return err
	}
	newest, err := readModFile(name)
	if err != nil {
		return err
	}
	light, err := readModFile(filepath.Join(m.directory, "go.mod"))
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(light.Require) {
		if versionOf(newest, r.Mod.Path) == "" {
			if err := light.DropRequire(r.Mod.Path); err != nil {
				return err
			}
		}
	}
	light.Cleanup()
	if len(light.Require) == len(m.file.Require) {
		return nil
	}
	for _, suffix := range []string{".mod", ".sum"} {
		if err := copyFile(filepath.Join(m.directory, "go"+suffix), filepath.Join(m.directory, whole+suffix), 0o644); err != nil {
			return err
		}
	}
	return writeModFile(filepath.Join(m.directory, "go.mod"), light)
}

// dropPropertyTests removes them. A program's go mod tidy would look for what they import.
func (m *mod) dropPropertyTests() error {
	return filepath.WalkDir(m.directory, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != m.directory && exists(filepath.Join(name, "go.mod")):
			return filepath.SkipDir // another module
		case strings.HasSuffix(name, propertyTests):
			return os.Remove(name)
		}
		return nil
	})
}
