package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// server returns the package of the root module that people install. Before v0.2.0 it was cmd/server.
func (t tree) server() string {
	if exists(filepath.Join(t.root().directory, "cmd", "regent")) {
		return "cmd/regent"
	}
	return "cmd/server"
}

// check makes a release of the files as they are, in a scratch directory, and does with it what people do: installs the
// server, and builds programs with each library. Modules of others come from where they always come from.
func check(ctx context.Context, o options) error {
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	source := filepath.Join(scratch, "source")
	if err := copyTree(ctx, root, source); err != nil {
		return err
	}
	proxy := filepath.Join(scratch, "proxy")
	t, err := prepare(ctx, source, o.version, proxy)
	if err != nil {
		return err
	}
	return checkRelease(ctx, scratch, proxy, t, o)
}

// checkRelease does with a release that is on a proxy what people do with one.
func checkRelease(ctx context.Context, scratch, proxy string, t tree, o options) error {
	env, err := environment(ctx, scratch, proxy, t)
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range t.libraries() {
		failed = append(failed, vet(ctx, place{directory: m.directory, env: env}, m), embed(ctx, place{directory: filepath.Join(scratch, "program", m.short), env: env}, t, m, o.version))
	}
	if o.quick {
		return errors.Join(append(failed, find(ctx, place{directory: filepath.Join(scratch, "program"), env: env}, t, o.version))...)
	}
	return errors.Join(append(failed, install(ctx, place{directory: scratch, env: env}, t, o.version))...)
}

// environment returns an environment in which nothing was ever downloaded, the release is on a proxy, and other modules
// may come from those downloaded before. Only our own modules are exempt from the checksum database, which cannot know
// them yet.
func environment(ctx context.Context, scratch, proxy string, t tree) ([]string, error) {
	out, err := place{directory: scratch}.ask(ctx, "go", "env", "GOMODCACHE", "GOPROXY", "GONOSUMDB")
	if err != nil {
		return nil, err
	}
	// lines of what is not set are empty, and the last are cut off
	known := append(strings.Split(out, "\n"), "", "")
	ours := t.root().path()
	exempt := strings.Trim(known[2]+","+ours, ",")
	return []string{
		"GOMODCACHE=" + filepath.Join(scratch, "modules"), "GOBIN=" + filepath.Join(scratch, "bin"),
		"GOPROXY=file://" + proxy + ",file://" + known[0] + "/cache/download," + known[1],
		"GONOSUMDB=" + exempt, "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOWORK=off",
	}, nil
}

// install installs the server by its version, and asks it for it.
func install(ctx context.Context, p place, t tree, version string) error {
	path := t.root().path() + "/" + t.server() + "@" + version
	fmt.Printf("go install %s\n", path)
	if err := p.quiet(ctx, "go", "install", path); err != nil {
		return err
	}
	binary := filepath.Join(p.directory, "bin", filepath.Base(t.server()))
	said, err := p.ask(ctx, binary, "version")
	if err != nil {
		return err
	}
	if want := "+regent." + version; !strings.Contains(said, want) {
		return fmt.Errorf("an installed server says that it is %q, want a version with %s: pkg/server/build makes it", said, want)
	}
	fmt.Printf("  it says: %s\n", said)
	return nil
}

// find finds all packages of the server by its version, as installing it would.
func find(ctx context.Context, p place, t tree, version string) error {
	fmt.Printf("go list -deps %s/%s of %s\n", t.root().path(), t.server(), version)
	for _, command := range [][]string{
		{"go", "mod", "init", "example.com/server"},
		{"go", "get", "-tool", t.root().path() + "/" + t.server() + "@" + version},
		{"go", "list", "-deps", "tool"},
	} {
		if err := p.quiet(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

// vet compiles a library's tests as they are in the release, with its whole go.mod.
func vet(ctx context.Context, p place, m *mod) error {
	fmt.Printf("the tests of %s\n", m.path())
	command := []string{"go", "vet", "./..."}
	if exists(filepath.Join(m.directory, whole+".mod")) {
		command = slices.Insert(command, 2, "-modfile="+whole+".mod")
	}
	return p.quiet(ctx, command...)
}

// embed builds a program with all packages of a library, and the newest Kubernetes that the server has.
func embed(ctx context.Context, p place, t tree, m *mod, version string) error {
	fmt.Printf("a program with %s\n", m.path())
	packages, err := packagesOf(ctx, m)
	if err != nil {
		return err
	}
	if err := writeProgram(p.directory, packages); err != nil {
		return err
	}
	const client = "k8s.io/client-go"
	kubernetes := versionOf(t.root().file, client)
	get := append([]string{"go", "get", m.path() + "@" + version}, staging(m.file, t.root().file)...)
	// the library requires none, and the program has it
	if pinned := client + "@" + kubernetes; !slices.Contains(get, pinned) {
		get = append(get, pinned)
	}
	for _, command := range [][]string{
		{"go", "mod", "init", "example.com/program"},
		get,
		{"go", "mod", "tidy"},
		{"go", "vet", "."},
	} {
		if err := p.quiet(ctx, command...); err != nil {
			return err
		}
	}
	got, err := p.ask(ctx, "go", "list", "-m", "-f", "{{.Version}}", client)
	if err == nil && got != kubernetes {
		err = fmt.Errorf("%s raises client-go from %s to %s", m.path(), kubernetes, got)
	}
	return err
}

// staging returns the modules of Kubernetes that a library requires, each at the version that the server requires.
// Kubernetes releases them together and promises nothing of a mixture: a program with a newer client-go has the newer
// apiserver too.
func staging(library, server *modfile.File) []string {
	var modules []string
	for _, r := range library.Require {
		version := versionOf(server, r.Mod.Path)
		if strings.HasPrefix(r.Mod.Path, "k8s.io/") && strings.HasPrefix(r.Mod.Version, "v0.") && semver.MajorMinor(version) == semver.MajorMinor(versionOf(server, "k8s.io/client-go")) {
			modules = append(modules, r.Mod.Path+"@"+version)
		}
	}
	return modules
}

// versionOf returns the version of a module that a go.mod requires; empty if it requires none.
func versionOf(file *modfile.File, path string) string {
	for _, r := range file.Require {
		if r.Mod.Path == path {
			return r.Mod.Version
		}
	}
	return ""
}

// packagesOf returns the packages of a library that programs can import.
func packagesOf(ctx context.Context, m *mod) ([]string, error) {
	found := map[string]bool{}
	files, err := place{directory: m.directory}.ask(ctx, "find", ".", "-name", "*.go", "-not", "-name", "*_test.go")
	if err != nil {
		return nil, err
	}
	var packages []string
	for name := range strings.FieldsSeq(files) {
		directory := filepath.ToSlash(filepath.Dir(name))
		switch {
		case found[directory], strings.Contains("/"+directory+"/", "/internal/"), strings.Contains("/"+directory+"/", "/testdata/"), inOther(m, directory):
			continue
		}
		found[directory] = true
		packages = append(packages, strings.TrimSuffix(m.path()+"/"+directory, "/."))
	}
	return packages, nil
}

// inOther reports whether a directory below a module belongs to another one.
func inOther(m *mod, directory string) bool {
	for ; directory != "."; directory = filepath.ToSlash(filepath.Dir(directory)) {
		if exists(filepath.Join(m.directory, directory, "go.mod")) {
			return true
		}
	}
	return false
}

// writeProgram writes a program that links packages.
func writeProgram(directory string, packages []string) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n\t_ \"k8s.io/client-go/kubernetes\"\n")
	for _, p := range packages {
		fmt.Fprintf(&b, "\t_ %q\n", p)
	}
	b.WriteString(")\n\nfunc main() {}\n")
	return os.WriteFile(filepath.Join(directory, "main.go"), []byte(b.String()), 0o600)
}
