package main

import (
	"testing"
)

// Of what modules share that are tested everything is compiled once. This test finds the module that has another
// version.
func TestModulesShareTheRootsVersions(t *testing.T) {
	all, err := readTree("../../..")
	if err != nil {
		t.Fatal(err)
	}
	want, looked := all.shared(), 0
	for _, m := range all.sorted() {
		if !m.shares() {
			continue
		}
		looked++
		for _, r := range differing(m.file, want) {
			t.Errorf("%s: %s is %s, and %s elsewhere: make versions", m.short, r.Mod.Path, r.Mod.Version, want[r.Mod.Path])
		}
	}
	if looked < 10 {
		t.Errorf("only %d modules were looked at", looked)
	}
}
