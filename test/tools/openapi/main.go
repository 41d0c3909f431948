// Command openapi generates pkg/server/apis/openapi: the OpenAPI definitions of the types that the shard serves, and of
// the types that they consist of, as far as no dependency of the server has them. `make generate` runs it. It reads the
// list of types from standard input, as test/tools/served prints it. Its argument is the root of the main module: it
// reads the types at the versions that the server is built with.
//
// It is a module of its own, so that the generator's dependencies are not the server's.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/gengo/v2/types"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

// elsewhere are the packages whose types upstream's apiextensions-apiserver describes, which the server links: package
// openapi takes them from there.
var elsewhere = []string{
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "k8s.io/apimachinery/pkg/api/resource",
	"k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/runtime", "k8s.io/apimachinery/pkg/version",
}

// names has the names of types by package.
type names map[string]map[string]bool

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: served | openapi <root of the main module>")
		os.Exit(2)
	}
	served, err := read(os.Stdin)
	if err == nil {
		err = generate(os.Args[1], served)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// read reads the output of test/tools/served.
func read(from io.Reader) (names, error) {
	out := names{}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var pkg, name string
		if _, err := fmt.Sscan(lines.Text(), &pkg, &name); err != nil {
			return nil, fmt.Errorf("%q is not a package and a type: %w", lines.Text(), err)
		}
		if out[pkg] == nil {
			out[pkg] = map[string]bool{}
		}
		out[pkg][name] = true
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read what is served: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("nothing is served: see why test/tools/served prints nothing")
	}
	return out, nil
}

func generate(root string, served names) error {
	// The generator looks for packages in the module of the working directory.
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("cannot work in the main module: %w", err)
	}
	header, err := gengo.GoBoilerplate(os.DevNull, gengo.StdBuildTag, gengo.StdGeneratedBy)
	if err != nil {
		return fmt.Errorf("cannot make the generated file's header: %w", err)
	}
	a := args.New()
	a.OutputDir = filepath.Join("pkg", "server", "apis", "openapi")
	a.OutputPkg = "github.com/regent-project/regent/pkg/server/apis/openapi"
	a.OutputFile = "zz_generated.openapi.go"
	a.GoHeaderFile = os.DevNull
	a.ReportFilename = os.DevNull
	if err := a.Validate(); err != nil {
		return fmt.Errorf("arguments of the generator: %w", err)
	}
	targets := func(c *generator.Context) []generator.Target {
		c.Order = slices.DeleteFunc(c.Order, func(t *types.Type) bool {
			return slices.Contains(elsewhere, t.Name.Package) || !served[t.Name.Package][t.Name.Name]
		})
		return generators.GetOpenAPITargets(c, a, header)
	}
	packages := slices.Sorted(maps.Keys(served))
	return gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), targets, gengo.StdBuildTag, packages)
}
