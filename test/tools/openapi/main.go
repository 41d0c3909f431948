// Command openapi generates pkg/server/apis/openapi: the OpenAPI definitions of exactly the types the shard serves and
// what they consist of. Run it in its own directory:
//
//	go run . ../../..
//
// with the root of the main module as the argument: the types are read at the versions the server is built with. It is a
// module of its own, so that the generator's dependencies are not the server's.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/gengo/v2/types"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

// served are the types of which definitions are made, with all they refer to. A nil list stands for the whole package.
var served = map[string][]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1": nil,
	"k8s.io/apimachinery/pkg/runtime":      nil,
	"k8s.io/apimachinery/pkg/version":      nil,
	"k8s.io/api/core/v1": {
		"Namespace", "NamespaceList", "ConfigMap", "ConfigMapList", "Secret", "SecretList", "Event", "EventList",
	},
	"k8s.io/api/events/v1":                                                        {"Event", "EventList"},
	"k8s.io/api/coordination/v1":                                                  {"Lease", "LeaseList"},
	"k8s.io/api/coordination/v1beta1":                                             {"LeaseCandidate", "LeaseCandidateList"},
	"github.com/kcp-dev/sdk/apis/tenancy/v1alpha1":                                {"Workspace", "WorkspaceList"},
	"github.com/kcp-dev/sdk/apis/core/v1alpha1":                                   {"LogicalCluster", "LogicalClusterList"},
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1": nil,
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . <root of the main module>")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(root string) error {
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
	var packages []string
	for name := range served {
		packages = append(packages, name)
	}
	slices.Sort(packages)
	targets := func(c *generator.Context) []generator.Target {
		reached := reachable(c.Universe)
		c.Order = slices.DeleteFunc(c.Order, func(t *types.Type) bool { return !reached[t] })
		return generators.GetOpenAPITargets(c, a, header)
	}
	return gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), targets, gengo.StdBuildTag, packages)
}

// reachable returns the served types and all they refer to.
func reachable(universe types.Universe) map[*types.Type]bool {
	reached := map[*types.Type]bool{}
	for pkg, names := range served {
		for name, t := range universe[pkg].Types {
			if names == nil || slices.Contains(names, name) {
				reach(t, reached)
			}
		}
	}
	return reached
}

// reach adds t and all it refers to.
func reach(t *types.Type, reached map[*types.Type]bool) {
	if t == nil || reached[t] {
		return
	}
	reached[t] = true
	reach(t.Elem, reached)
	reach(t.Key, reached)
	reach(t.Underlying, reached)
	for _, m := range t.Members {
		reach(m.Type, reached)
	}
}
