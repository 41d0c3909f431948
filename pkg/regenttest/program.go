package regenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
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
	is, err := thisLibrary()
	if err == nil {
		f.file, err = is.program(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("there is no program to start: set $%s to the file of one, or give regenttest.Program: %w", variable, err)
	}
	return f.file, nil
}

// library is this library, as a test's binary has it.
type library struct {
	root    string // module of the server, from which the program is built
	version string // empty: it is in a directory
}

// thisLibrary returns which library this is.
func thisLibrary() (library, error) {
	module := reflect.TypeFor[Server]().PkgPath()
	l := library{root: strings.TrimSuffix(module, "/pkg/regenttest")}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return l, errors.New("this binary does not say of which modules it is made")
	}
	for _, m := range info.Deps {
		switch {
		case m.Path != module:
		case m.Replace == nil:
			l.version = m.Version
			return l, nil
		case m.Replace.Version != "":
			return l, fmt.Errorf("%s is replaced by %s %s, and nobody knows what is built from that", module, m.Replace.Path, m.Replace.Version)
		}
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
