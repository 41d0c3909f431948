// Package build says which build of Regent runs.
package build

import (
	"cmp"
	"runtime/debug"
	"strings"
	"sync"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/version"
)

// libraries is the module whose version is Kubernetes' version, with major 0 instead of 1.
const libraries = "k8s.io/apiserver"

// Info returns the version of this build, as `regent version` and /version show it. `make build` sets it by the linker.
// Otherwise (`go install`, `go build`, tests) it is made of what Go recorded in the binary. GitVersion is a semantic
// version that begins with that of the Kubernetes libraries, because clients derive the version skew from it.
var Info = sync.OnceValue(func() apiversion.Info {
	recorded, _ := debug.ReadBuildInfo()
	return infoOf(version.Get(), recorded)
})

// infoOf returns linked if the linker was given a version, and otherwise completes it by what Go recorded.
func infoOf(linked apiversion.Info, recorded *debug.BuildInfo) apiversion.Info {
	if v, err := utilversion.ParseSemantic(linked.GitVersion); err == nil && v.Major() > 0 {
		return linked
	}
	kubernetes, ours, settings := version.DefaultKubeBinaryVersion+".0", "unknown", map[string]string{}
	if recorded != nil {
		for _, s := range recorded.Settings {
			settings[s.Key] = s.Value
		}
		for _, dep := range recorded.Deps {
			if dep.Path == libraries {
				kubernetes = "1" + strings.TrimPrefix(dep.Version, "v0")
			}
		}
		ours = versionOf(recorded.Main.Version, settings)
	}
	linked.GitVersion = "v" + kubernetes + "+regent." + ours
	if v, err := utilversion.ParseSemantic(linked.GitVersion); err == nil {
		linked.Major, linked.Minor = utilversion.Itoa(v.Major()), utilversion.Itoa(v.Minor())
	}
	linked.GitCommit = cmp.Or(settings["vcs.revision"], "unknown")
	linked.BuildDate = cmp.Or(settings["vcs.time"], linked.BuildDate) // the commit's date, as with make build
	linked.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[settings["vcs.modified"]]
	return linked
}

// versionOf returns the module's version as semantic versions can have it behind a plus.
func versionOf(module string, settings map[string]string) string {
	if module == "" || module == "(devel)" {
		module = settings["vcs.revision"]
		module = module[:min(12, len(module))]
		if settings["vcs.modified"] == "true" && module != "" {
			module += ".dirty"
		}
	}
	return cmp.Or(strings.ReplaceAll(module, "+", "."), "unknown")
}
