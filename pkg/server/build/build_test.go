package build

import (
	"runtime/debug"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// unlinked is what component-base has if the linker was given no version.
const unlinked = "v0.0.0-master+$Format:%H$"

// Clients refuse a server whose version is no semantic version (kubectl version ends with 1), however it was built.
func TestEachBuildHasAVersionThatClientsCanParse(t *testing.T) {
	kubernetes := []*debug.Module{{Path: "k8s.io/api", Version: "v0.1.1"}, {Path: libraries, Version: "v0.37.2"}}
	for name, c := range map[string]struct {
		linked   string
		recorded *debug.BuildInfo
		want     string
		commit   string
	}{
		"make build":            {linked: "v1.37.2+regent.v0.4.0", want: "v1.37.2+regent.v0.4.0"},
		"go install at a tag":   {linked: unlinked, recorded: &debug.BuildInfo{Main: debug.Module{Version: "v0.4.0"}, Deps: kubernetes}, want: "v1.37.2+regent.v0.4.0", commit: "unknown"},
		"go install at nothing": {linked: unlinked, recorded: &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261123120000-0123456789ab+dirty"}, Deps: kubernetes}, want: "v1.37.2+regent.v0.0.0-20261123120000-0123456789ab.dirty", commit: "unknown"},
		"go build in a clone": {linked: unlinked, recorded: &debug.BuildInfo{
			Main: debug.Module{Version: "(devel)"}, Deps: kubernetes,
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}},
		}, want: "v1.37.2+regent.0123456789ab.dirty", commit: "0123456789abcdef"},
		"go build without git":  {linked: unlinked, recorded: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Deps: kubernetes}, want: "v1.37.2+regent.unknown", commit: "unknown"},
		"nothing was recorded":  {linked: unlinked, want: "v1.37.0+regent.unknown", commit: "unknown"},
		"the linker was fooled": {linked: "devel", want: "v1.37.0+regent.unknown", commit: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			got := infoOf(apiversion.Info{GitVersion: c.linked}, c.recorded)
			if got.GitVersion != c.want || got.GitCommit != c.commit {
				t.Errorf("got %s of commit %q, want %s of %q", got.GitVersion, got.GitCommit, c.want, c.commit)
			}
			if _, err := utilversion.ParseSemantic(got.GitVersion); err != nil {
				t.Error(err)
			}
		})
	}
}
