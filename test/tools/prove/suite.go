package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// module is the path of the root module, with a slash.
const module = "github.com/regent-project/regent/"

// apart are modules, and packages, whose tests are no part of make test: they have targets of their own.
var apart = []string{"test/bench", "test/tools/conformance", "test/tools/promtool", "test/upgrade", "test/releases/fill"}

// separate are packages whose tests drive processes: what they prove does not run in the process that the race detector
// would watch.
var separate = []string{"test/e2e", "test/embed", "test/deploy", "test/browser", "test/releases"}

// rapid is the library of properties.
const rapid = "pgregory.net/rapid"

// A unit is the tests of one package.
type unit struct {
	name   string // the directory, relative to the root
	path   string // the import path
	module string // the directory of its module, relative to the root
	dir    string // the directory
	race   bool   // its tests run with the race detector
	random bool   // some of its tests are properties, of random cases
	home   string // the directory of its binary, below that of all: the same in each run

	shard string   // which part of the tests it is, such as 1/4; "": all of them
	tests []string // of a part
}

// label names a unit for people.
func (u unit) label() string { return strings.TrimSpace(u.name + " " + u.shard) }

// listed is what go list says of a package.
type listed struct {
	Dir, ImportPath                              string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports                    []string
}

// readSuite returns all units below root, in the order of their names. Modules are found, not listed: a new one is
// tested.
func readSuite(ctx context.Context, root string, race bool) ([]unit, error) {
	modules, err := testedModules(root)
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, m := range modules {
		patterns := []string{"./..."}
		if m == "." {
			patterns = append(patterns, module+"...") // of the libraries that it requires, too
		}
		packages, err := list(ctx, root, m, patterns)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			name, ours := strings.CutPrefix(p.ImportPath, module)
			known := slices.ContainsFunc(units, func(u unit) bool { return u.path == p.ImportPath })
			if !ours || known || slices.Contains(apart, name) || len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
				continue
			}
			u := unit{name: name, path: p.ImportPath, module: m, dir: p.Dir, random: slices.Contains(slices.Concat(p.TestImports, p.XTestImports), rapid)}
			if race && !slices.Contains(separate, name) {
				if u.race, err = startsGoroutines(p); err != nil {
					return nil, err
				}
			}
			units = append(units, u)
		}
	}
	slices.SortFunc(units, func(a, b unit) int { return cmp.Compare(a.name, b.name) })
	return housed(units), nil
}

// housed gives each unit its home. In none there are two binaries of the same name, and all are compiled in the same
// way.
func housed(units []unit) []unit {
	taken := map[string]bool{}
	for i, u := range units {
		for n := 0; units[i].home == ""; n++ {
			home := path.Join(strings.ReplaceAll(u.module, "/", "-"), fmt.Sprintf("race-%t-%d", u.race, n))
			if name := path.Join(home, path.Base(u.name)); !taken[name] {
				taken[name], units[i].home = true, home
			}
		}
	}
	return units
}

// testedModules returns the directories of modules that have tests, the root first: what the root requires is tested
// with the root's versions, and a library that it does not require with its own.
func testedModules(root string) ([]string, error) {
	modules := []string{"."}
	tested := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		switch base := entry.Name(); {
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata" || base == "node_modules"):
			return filepath.SkipDir
		case base == "go.mod" && name != base:
			modules = append(modules, filepath.ToSlash(filepath.Dir(name)))
		case strings.HasSuffix(base, "_test.go"):
			tested[filepath.ToSlash(filepath.Dir(name))] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look for modules below %s: %w", root, err)
	}
	return slices.DeleteFunc(modules, func(m string) bool {
		if m == "." {
			return false
		}
		for dir := range tested {
			if dir == m || strings.HasPrefix(dir, m+"/") {
				return slices.Contains(apart, m)
			}
		}
		return true
	}), nil
}

// workspace has the libraries with the root's versions (make versions).
const workspace = "test/libraries.work"

// environment is that of the go command in a module. A library is tested with the root's versions, in which all is
// compiled already; that it works with those of its own is for make compat.
func environment(root, name string) []string {
	env := os.Environ()
	if strings.HasPrefix(name, "pkg/") {
		env = append(env, "GOWORK="+filepath.Join(root, workspace))
	}
	return env
}

// list asks go list for packages that patterns match, in a module.
func list(ctx context.Context, root, name string, patterns []string) ([]listed, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)
	command := exec.CommandContext(ctx, goCommand, args...)
	command.Dir, command.Env, command.Stderr = filepath.Join(root, name), environment(root, name), os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", name, err)
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("what go list says in %s: %w", name, err)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// startsGoroutines tells whether a package, or its tests, has anything for the race detector to watch: a go statement,
// a call of a method named Go, a parallel test, or what goroutines share. Tables of values have nothing of it, and run
// several times as fast without the detector.
func startsGoroutines(p listed) (bool, error) {
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles) {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, fmt.Errorf("cannot read %s of %s: %w", name, p.ImportPath, err)
		}
		if hasGoroutines(parsed) {
			return true, nil
		}
	}
	return false, nil
}

func hasGoroutines(file *ast.File) bool {
	for _, i := range file.Imports {
		if p := strings.Trim(i.Path.Value, `"`); p == "sync" || p == "sync/atomic" || path.Base(p) == "errgroup" {
			return true
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && (called.Sel.Name == "Go" || called.Sel.Name == "Parallel") {
				found = true
			}
		}
		return !found
	})
	return found
}

// choosePackages returns the units that patterns name: directories relative to the root, or such ones and /... for all
// below. No pattern means all.
func choosePackages(units []unit, patterns []string) ([]unit, error) {
	if len(patterns) == 0 {
		return units, nil
	}
	var some []unit
	for _, p := range patterns {
		p = strings.TrimSuffix(path.Clean(strings.TrimPrefix(p, module)), "/")
		above, all := strings.CutSuffix(p, "/...")
		before := len(some)
		for _, u := range units {
			if u.name == p || all && (u.name == above || strings.HasPrefix(u.name, above+"/")) || p == "..." {
				some = append(some, u)
			}
		}
		if len(some) == before {
			return nil, fmt.Errorf("%s has no tests that make test runs: name a directory below the root, such as pkg/election or pkg/election/...", p)
		}
	}
	return some, nil
}

// cores is how many CPUs there are for tests.
func cores() float64 { return float64(runtime.GOMAXPROCS(0)) }
