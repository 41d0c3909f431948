package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
)

// runtime is controller-runtime. Its minor versions follow those of Kubernetes, 12 behind.
const runtime, runtimeLag = "sigs.k8s.io/controller-runtime", 12

// compat tests each library with the newest patch of each minor version of Kubernetes that its go.mod allows, and
// compiles it as its go.mod is: with the oldest. Nothing in the repository is changed.
func compat(ctx context.Context, o options) error {
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	t, err := readTree(root)
	if err != nil {
		return err
	}
	var failed []error
	found, tested := 0, 0
	for _, m := range t.libraries() {
		if o.only != "" && m.short != filepath.ToSlash(filepath.Clean(o.only)) {
			continue
		}
		found++
		n, err := m.compat(ctx, strings.Fields(o.minors))
		if n == 0 && err == nil && o.minors == everyMinor {
			err = fmt.Errorf("%s needs another Kubernetes than any of %s", m.short, o.minors)
		}
		tested += n
		failed = append(failed, err)
	}
	switch err := errors.Join(failed...); {
	case found == 0:
		return errors.New("there is no such library")
	case err == nil && tested == 0:
		return fmt.Errorf("nothing is tested with Kubernetes %s: give another version", o.minors)
	default:
		return err
	}
}

// everyMinor are the minor versions of Kubernetes with one of which each library must be tested.
const everyMinor = "0.35 0.36 0.37"

// compat returns with how many of some minor versions a library was tested. Those that it is too new for are told.
func (m *mod) compat(ctx context.Context, minors []string) (tested int, err error) {
	fmt.Printf("%s: compile it with the oldest versions that it allows\n", m.short)
	here := place{directory: m.directory, env: []string{"GOWORK=off"}}
	if err := here.run(ctx, "go", "vet", "./..."); err != nil {
		return 0, err
	}
	for _, minor := range minors {
		kubernetes, err := m.versionsFor(ctx, minor)
		if err != nil {
			return tested, err
		}
		if kubernetes == nil {
			fmt.Printf("%s: needs a newer Kubernetes than %s\n", m.short, minor)
			continue
		}
		tested++
		if err := m.testWith(ctx, kubernetes); err != nil {
			return tested, fmt.Errorf("%s with Kubernetes %s: %w", m.short, minor, err)
		}
	}
	return tested, nil
}

// versionsFor returns the newest versions, of a minor one of Kubernetes, of the modules that a library requires; nil if
// the library requires newer ones.
func (m *mod) versionsFor(ctx context.Context, minor string) (map[string]string, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(minor, "0."))
	if err != nil {
		return nil, fmt.Errorf("%q is no minor version of the k8s.io modules, such as 0.37", minor)
	}
	versions := map[string]string{}
	for _, r := range m.file.Require {
		want := n
		switch staging := strings.HasPrefix(r.Mod.Path, "k8s.io/") && strings.HasPrefix(r.Mod.Version, "v0.") && !strings.HasPrefix(r.Mod.Version, "v0.0."); {
		case r.Mod.Path == runtime:
			want -= runtimeLag
		case !staging:
			continue
		}
		newest, err := newest(ctx, m.directory, r.Mod.Path, "v0."+strconv.Itoa(want))
		if err != nil {
			return nil, err
		}
		if semver.Compare(newest, r.Mod.Version) < 0 {
			return nil, nil
		}
		versions[r.Mod.Path] = newest
	}
	return versions, nil
}

// newest returns the newest release of a minor version of a module.
func newest(ctx context.Context, directory, path, minor string) (string, error) {
	out, err := place{directory: directory, env: []string{"GOWORK=off", "GOFLAGS=-mod=mod"}}.ask(ctx, "go", "list", "-m", "-versions", "-f", `{{join .Versions " "}}`, path)
	if err != nil {
		return "", err
	}
	best := newestOf(strings.Fields(out), minor)
	if best == "" {
		return "", fmt.Errorf("%s has no release %s", path, minor)
	}
	return best, nil
}

// newestOf returns the newest of versions that is a release of a minor version.
func newestOf(versions []string, minor string) (best string) {
	for _, v := range versions {
		if semver.MajorMinor(v) == minor && semver.Prerelease(v) == "" && semver.Compare(v, best) > 0 {
			best = v
		}
	}
	return best
}

// testWith runs the library's tests with given versions of others, by a go.mod outside of the repository.
func (m *mod) testWith(ctx context.Context, versions map[string]string) error {
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	file := filepath.Join(scratch, "go.mod")
	if err := copyFile(filepath.Join(m.directory, "go.sum"), filepath.Join(scratch, "go.sum"), 0o600); err != nil {
		return err
	}
	if err := m.writeWith(file, versions); err != nil {
		return err
	}
	here := place{directory: m.directory, env: []string{"GOWORK=off", "GOFLAGS=-trimpath"}}
	if err := here.quiet(ctx, "go", "mod", "tidy", "-modfile="+file); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		if got, err := here.ask(ctx, "go", "list", "-modfile="+file, "-m", "-f", "{{.Version}}", path); err != nil || got != versions[path] {
			return fmt.Errorf("%s %s cannot be had, something requires %s: %w", path, versions[path], got, err)
		}
	}
	fmt.Printf("%s: test it with %s\n", m.short, names(versions))
	return here.run(ctx, "go", "test", "-vet=off", "-modfile="+file, "-timeout=20m", "./...")
}

// writeWith writes the module's go.mod with other versions.
func (m *mod) writeWith(name string, versions map[string]string) error {
	file, err := readModFile(filepath.Join(m.directory, "go.mod"))
	if err != nil {
		return err
	}
	for path, version := range versions {
		if err := file.AddRequire(path, version); err != nil {
			return err
		}
	}
	return writeModFile(name, file)
}

// names lists the versions once.
func names(versions map[string]string) string {
	names := map[string]bool{}
	for path, version := range versions {
		if path != runtime {
			path = "k8s.io/*"
		}
		names[path+" "+version] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
