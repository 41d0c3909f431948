package main

import (
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/mod/semver"
)

// What a program with client-go may gain: the module itself, the header of tokens, and the type in it. Neither requires
// anything. docs/RELEASING.md promises it.
var gained = []string{"github.com/dunglas/httpsfv", "github.com/kcp-dev/logicalcluster/v3", "github.com/regent-project/regent/pkg/election"}

func TestAProgramWithClientGoGainsThreeModulesWithTheElection(t *testing.T) {
	root, source := "../../..", filepath.Join(t.TempDir(), "source")
	if err := copyTree(t.Context(), root, source); err != nil {
		t.Fatal(err)
	}
	all, err := readTree(source)
	if err != nil {
		t.Fatal(err)
	}
	election := all[all.root().path()+"/pkg/election"]
	if err := all.lighten(t.Context(), election); err != nil {
		t.Fatal(err)
	}
	directory, err := clientGoAlone(t.Context(), root, filepath.Join(t.TempDir(), "program"))
	if err != nil {
		t.Fatal(err)
	}
	p := place{directory: directory, env: []string{"GOWORK=off", "GOFLAGS=-mod=mod"}}
	before, err := selected(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := packagesOf(t.Context(), election)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProgram(directory, packages); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"go", "mod", "edit", "-require=" + election.path() + "@" + version, "-replace=" + election.path() + "=" + election.directory}, {"go", "mod", "tidy"},
	} {
		if err := p.quiet(t.Context(), command...); err != nil {
			t.Fatal(err)
		}
	}
	after, err := selected(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) < 50 {
		t.Errorf("a program with client-go has %d modules: this test shows nothing", len(before))
	}
	for path, now := range after {
		switch was, known := before[path]; {
		case !known && !slices.Contains(gained, path):
			t.Errorf("it gains %s: move what needs it to a module of its own, as pkg/election/metrics is", path)
		case known && semver.Compare(was, now) != 0:
			t.Errorf("it gets %s of %s, and has %s", now, path, was)
		}
	}
}
