package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// programs are directories of go.mod files, by what the program is called.
type programs map[string]string

func (p *programs) String() string { return "" }

func (p *programs) Set(text string) error {
	name, directory, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("want name=directory")
	}
	if *p == nil {
		*p = programs{}
	}
	(*p)[name] = directory
	return nil
}

// offer is a library in one state of the repository.
type offer struct {
	called  string
	path    string // of its module
	version string
	imports []string
	env     []string
}

// clientGo is the program that there is always: it talks to a server by client-go, and has nothing else.
const clientGo = "client-go alone"

// weight prints what the module graph of each program gains when it takes the library: a row for a program and a state
// of the repository. A module is bumped if the program had it in an older version.
func weight(ctx context.Context, o options) error {
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	offers, err := offersOf(ctx, o, scratch)
	if err != nil {
		return err
	}
	if o.programs == nil {
		o.programs = programs{}
	}
	if o.programs[clientGo], err = clientGoAlone(ctx, o.tree, filepath.Join(scratch, "client-go")); err != nil {
		return err
	}
	fmt.Println("| program | modules in its graph | takes | added | of these in its go.mod | bumped | what is added |\n|---|---|---|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(o.programs)) {
		for i, offer := range offers {
			row, err := offer.weigh(ctx, o.programs[name], filepath.Join(scratch, fmt.Sprint(name, i)))
			if err != nil {
				return fmt.Errorf("%s with %s: %w", name, offer.called, err)
			}
			fmt.Printf("| %s | %s\n", name, row)
		}
	}
	return nil
}

// offersOf packs the library as it was, if that is asked for, and as it is.
func offersOf(ctx context.Context, o options, scratch string) ([]offer, error) {
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return nil, err
	}
	var offers []offer
	if o.since != "" {
		was := filepath.Join(scratch, "was")
		if err := os.Mkdir(was, 0o700); err != nil {
			return nil, err
		}
		if err := (place{directory: root}).quiet(ctx, "sh", "-c", `git archive "$0" | tar -x -C "$1"`, o.since, was); err != nil {
			return nil, err
		}
		then, err := offerOf(ctx, o, was, filepath.Join(scratch, "then"))
		if err != nil {
			return nil, err
		}
		offers = append(offers, then)
	}
	is := filepath.Join(scratch, "is")
	if err := copyTree(ctx, root, is); err != nil {
		return nil, err
	}
	now, err := offerOf(ctx, o, is, filepath.Join(scratch, "now"))
	return append(offers, now), err
}

func offerOf(ctx context.Context, o options, source, scratch string) (offer, error) {
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return offer{}, err
	}
	proxy := filepath.Join(scratch, "proxy")
	t, err := prepare(ctx, source, o.version, proxy)
	if err != nil {
		return offer{}, err
	}
	env, err := environment(ctx, scratch, proxy, t)
	if err != nil {
		return offer{}, err
	}
	library := filepath.ToSlash(filepath.Clean(o.only))
	if o.only == "" {
		library = "pkg/election"
	}
	m := t[t.root().path()+"/"+library]
	if m == nil {
		path := t.root().path()
		return offer{called: "the whole module", path: path, version: o.version, imports: []string{path + "/" + library}, env: env}, nil
	}
	packages, err := packagesOf(ctx, m)
	return offer{called: "`" + library + "`", path: m.path(), version: o.version, imports: packages, env: env}, err
}

// weigh returns the row of a program, without its name.
func (o offer) weigh(ctx context.Context, program, scratch string) (string, error) {
	if err := copyProgram(program, scratch); err != nil {
		return "", err
	}
	p := place{directory: scratch, env: o.env}
	before, err := selected(ctx, p)
	if err != nil {
		return "", err
	}
	had := requiredBy(scratch)
	get := []string{"go", "get"}
	for _, path := range o.imports {
		get = append(get, path+"@"+o.version)
	}
	if err := p.quiet(ctx, get...); err != nil {
		return "", err
	}
	after, err := selected(ctx, p)
	if err != nil {
		return "", err
	}
	var added, bumped []string
	for _, path := range slices.Sorted(maps.Keys(after)) {
		switch was, known := before[path]; {
		case !known:
			added = append(added, path)
		case semver.Compare(was, after[path]) < 0:
			bumped = append(bumped, path)
		}
	}
	required := 0
	for _, path := range requiredBy(scratch) {
		if !slices.Contains(had, path) && slices.Contains(added, path) {
			required++
		}
	}
	what := ""
	if len(added) <= 6 {
		what = "`" + strings.Join(added, "`, `") + "`"
	}
	return fmt.Sprintf("%d | %s | %d | %d | %d | %s |", len(before), o.called, len(added), required, len(bumped), what), nil
}

// requiredBy returns the modules that a go.mod lists.
func requiredBy(directory string) (paths []string) {
	file, err := readModFile(filepath.Join(directory, "go.mod"))
	if err != nil {
		return nil
	}
	for _, r := range file.Require {
		paths = append(paths, r.Mod.Path)
	}
	return paths
}

// selected returns the version of each module in the graph of a program, other than its own: the highest that anything
// in the graph requires.
func selected(ctx context.Context, p place) (map[string]string, error) {
	graph, err := p.ask(ctx, "go", "mod", "graph")
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for node := range strings.FieldsSeq(graph) {
		path, version, versioned := strings.Cut(node, "@")
		if versioned && path != "go" && path != "toolchain" && semver.Compare(version, versions[path]) > 0 {
			versions[path] = version
		}
	}
	return versions, nil
}

// clientGoAlone makes a program that has the client-go of the server. Its go.mod lists what its packages come from, as
// that of each program does that Go can build: a go.mod with client-go alone would seem to gain those with any other
// module.
func clientGoAlone(ctx context.Context, tree, directory string) (string, error) {
	root, err := readModFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		return "", err
	}
	if err := writeProgram(directory, nil); err != nil {
		return "", err
	}
	text := "module example.com/program\n\ngo " + root.Go.Version + "\n\nrequire k8s.io/client-go " + versionOf(root, "k8s.io/client-go") + "\n"
	if err := os.WriteFile(filepath.Join(directory, "go.mod"), []byte(text), 0o600); err != nil {
		return "", err
	}
	return directory, place{directory: directory, env: []string{"GOWORK=off", "GOFLAGS="}}.quiet(ctx, "go", "mod", "tidy")
}

// copyProgram copies what a program's graph depends on. A directory that it replaces a module by is taken where it is.
func copyProgram(from, to string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if sum := filepath.Join(from, "go.sum"); exists(sum) {
		if err := copyFile(sum, filepath.Join(to, "go.sum"), 0o600); err != nil {
			return err
		}
	}
	file, err := readModFile(filepath.Join(from, "go.mod"))
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(file.Replace) {
		if r.New.Version == "" && module.CheckPath(r.New.Path) != nil {
			if err := file.AddReplace(r.Old.Path, r.Old.Version, filepath.Join(from, r.New.Path), ""); err != nil {
				return err
			}
		}
	}
	return writeModFile(filepath.Join(to, "go.mod"), file)
}
