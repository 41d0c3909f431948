package main

import (
	"cmp"
	"slices"
	"strings"
)

// A part is something that takes too long for each change: a target of the Makefile. It runs when a change touches what
// it proves, and else in turn.
type part struct {
	target  string   // with its variables, as make takes them
	touched []string // files that it is about: a path, or a directory with a slash at its end
	minutes float64  // on two slow cores (docs/TESTS.md), with a build cache that has all that make test needs
}

// parts are all of them, in the order of their turns.
var parts = []part{
	{"compat KUBERNETES=0.35", []string{"pkg/election/", "test/tools/modules/"}, 40},
	{"alerts", []string{"deploy/prometheus/", "test/tools/promtool/"}, 10},
	{"long-properties", []string{"pkg/server/terms/", "pkg/election/control/", "pkg/election/internal/lease/"}, 20},
	{"release-check", []string{"go.mod", "pkg/election/go.mod", "pkg/election/etcdfence/go.mod", "pkg/election/mcr/go.mod", "pkg/election/metrics/go.mod", "pkg/election/perterm/go.mod", "pkg/regenttest/go.mod", "test/tools/modules/", "test/tools/pack/"}, 12},
	{"long-workspaces", []string{"pkg/controllers/workspace/", "pkg/controllers/logicalcluster/", "pkg/controllers/content/", "pkg/controllers/namespace/"}, 8},
	{"compat KUBERNETES=0.36", nil, 40},
	{"long-scenarios", nil, 10},
	{"long-faults", []string{"pkg/election/detect/", "pkg/election/ranges/", "pkg/election/control/supervisor/", "pkg/server/storage/members.go", "pkg/server/storage/tries.go"}, 12},
	{"long-definitions", []string{"pkg/server/custom/", "pkg/controllers/definition/"}, 10},
	{"long-sample", []string{"pkg/election/etcdfence/", "examples/apiserver/", "pkg/election/leader/"}, 6},
	{"conformance", []string{"pkg/server/apis/apiextensions/", "test/tools/conformance/"}, 25},
	{"long-manager", []string{"pkg/election/perterm/", "examples/manager/", "pkg/election/join/"}, 6},
	{"long-programs", []string{"pkg/election/leader/", "pkg/election/clientgo/", "pkg/election/perterm/", "pkg/election/join/"}, 8},
	{"long-leases", []string{"pkg/election/electiontest/", "test/tools/kubernetes/"}, 15},
	{"compat KUBERNETES=0.37", nil, 40},
}

// A chosen part is one that this change runs, and why.
type chosenPart struct {
	part
	why string
}

// choose returns the parts for a change that touches files and is the turn-th of all: those that are touched, the most
// touched first, as far as there is time, or the one whose turn it is. What there is no time for is left out, and told.
func choose(parts []part, files []string, turn int, minutes float64) (runs, rest []chosenPart) {
	type count struct {
		part
		touched []string
	}
	var counts []count
	for _, p := range parts {
		if touched := p.touchedBy(files); len(touched) > 0 {
			counts = append(counts, count{p, touched})
		}
	}
	slices.SortStableFunc(counts, func(a, b count) int { return cmp.Compare(len(b.touched), len(a.touched)) })
	var all []chosenPart
	for _, c := range counts {
		all = append(all, chosenPart{c.part, "the change touches " + c.touched[0]})
	}
	if len(all) == 0 {
		all = append(all, chosenPart{parts[turn%len(parts)], "it is its turn"})
	}
	for _, c := range all {
		if minutes -= c.minutes; minutes >= 0 {
			runs = append(runs, c)
			continue
		}
		minutes += c.minutes
		rest = append(rest, c)
	}
	return runs, rest
}

// touchedBy returns the files that a part is about.
func (p part) touchedBy(files []string) (touched []string) {
	for _, f := range files {
		if slices.ContainsFunc(p.touched, func(t string) bool { return f == t || strings.HasSuffix(t, "/") && strings.HasPrefix(f, t) }) {
			touched = append(touched, f)
		}
	}
	return touched
}
