package regenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
)

// variable names the file of the program.
const variable = "REGENT"

// find returns the file of the program, which it may have to build: until ctx ends.
func find(ctx context.Context, o options) (string, error) {
	if o.programGiven {
		return executable(fmt.Sprintf("regenttest.Program(%q)", o.program), o.program)
	}
	if file := os.Getenv(variable); file != "" {
		return executable(fmt.Sprintf("$%s is %q", variable, file), file)
	}
	return finding.of(ctx)
}

// executable returns a file as an absolute path, if it can be run.
func executable(named, file string) (string, error) {
	found, err := exec.LookPath(file)
	if err != nil {
		return "", fmt.Errorf("%s: it cannot be run: %w", named, err)
	}
	return filepath.Abs(found)
}

// finding finds the program of this library's version, once for the process.
var finding once

type once struct {
	mu   sync.Mutex
	file string
}

func (f *once) of(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != "" {
		return f.file, nil
	}
	is, err := thisLibrary(ctx)
	if err == nil {
		f.file, err = is.program(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("there is no program to start: set $%s to the file of one, or give regenttest.Program: %w", variable, err)
	}
	return f.file, nil
}

// library is this library, as the test's module has it.
type library struct {
	server    string // module of the server, from which the program is built
	version   string // empty: it is a directory
	directory string
}

// thisLibrary asks the go command which library this is, since a test's binary does not know it. A test runs in the
// directory of its package, which is in its module.
func thisLibrary(ctx context.Context) (library, error) {
	type module struct {
		Version, Dir string
		Replace      *module
	}
	path := reflect.TypeFor[Server]().PkgPath()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-json=Version,Dir,Replace", path).Output() //nolint:gosec // this package
	if err != nil {
		return library{}, fmt.Errorf("go list -m %s, to find its version: %w", path, explained(err))
	}
	var m module
	if err := json.Unmarshal(out, &m); err != nil {
		return library{}, fmt.Errorf("go list -m %s: %w", path, err)
	}
	l := library{server: strings.TrimSuffix(path, "/pkg/regenttest"), version: m.Version, directory: m.Dir}
	if m.Replace != nil {
		if m.Replace.Version != "" {
			return l, fmt.Errorf("%s is replaced by another module, and nobody knows what is built from that", path)
		}
		l.version, l.directory = "", m.Replace.Dir
	}
	return l, nil
}

// program returns the file of the program of the library's version.
func (l library) program(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory for what is built: %w", err)
	}
	cache = filepath.Join(cache, "regenttest")
	if l.version == "" {
		return l.fromDirectory(ctx, cache)
	}
	built := filepath.Join(cache, l.version, "regent")
	if _, err := os.Stat(built); err == nil {
		return built, nil
	}
	for _, file := range installed(ctx) {
		if is, err := exec.CommandContext(ctx, file, "version").Output(); err == nil && strings.Contains(string(is), "+regent."+l.version+" ") { //nolint:gosec // it is called regent
			return file, nil
		}
	}
	return built, l.install(ctx, built)
}

// installed are the programs called regent that there are: on the PATH, and where go install puts them.
func installed(ctx context.Context) (files []string) {
	candidates := []string{"regent"}
	if out, err := exec.CommandContext(ctx, "go", "env", "GOBIN", "GOPATH").Output(); err == nil {
		if bin, paths, found := strings.Cut(string(out), "\n"); found {
			if bin = strings.TrimSpace(bin); bin == "" {
				bin = filepath.Join(strings.TrimSpace(filepath.SplitList(strings.TrimSpace(paths) + string(filepath.ListSeparator))[0]), "bin")
			}
			candidates = append(candidates, filepath.Join(bin, "regent"))
		}
	}
	for _, candidate := range candidates {
		if file, err := executable(candidate, candidate); err == nil {
			files = append(files, file)
		}
	}
	return files
}
