package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWhatIsMeasuredIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tests.md")
	var skeleton strings.Builder
	for _, name := range []string{packagesRace, packagesPlain, testsSection} {
		begin, end := marks(name)
		skeleton.WriteString("before\n" + begin + "| old |\n" + end)
	}
	if err := os.WriteFile(file, []byte(skeleton.String()+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReport(&strings.Builder{}, time.Now)
	for i, shard := range []string{"1/2", "2/2"} {
		u := unit{name: "pkg/a", path: module + "pkg/a", shard: shard, race: true}
		r.started(u)
		r.ended(ended{unit: u, usage: usage{wall: time.Duration(i+1) * time.Minute, cpu: 30 * time.Second}})
	}
	a := unit{name: "pkg/a"}
	r.tests = []testResult{{unit: a, name: "TestLong", wall: 90 * time.Second, cpu: 3 * time.Second}, {unit: a, name: "TestShort", wall: time.Millisecond}}
	if err := r.writeTable(file, true); err != nil {
		t.Fatal(err)
	}
	known, err := readCosts(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]cost{"pkg/a": {3 * time.Minute, time.Minute}, "pkg/a TestLong": {90 * time.Second, 3 * time.Second}} {
		if known[name] != want {
			t.Errorf("%s took %+v, want %+v", name, known[name], want)
		}
	}
	if len(known) != 2 {
		t.Errorf("%d costs are known: %v", len(known), known)
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Count(string(content), "before\n") != 3 || !strings.HasSuffix(string(content), "after\n") || strings.Count(string(content), "| old |") != 1 {
		t.Errorf("%v: around the tables something has changed, or without the race detector something was measured:\n%s", err, content)
	}
}

func TestTheTableOfTheRepositoryIsRead(t *testing.T) {
	known, err := readCosts(filepath.Join("../../..", tableFile))
	if err != nil || len(known) < 100 {
		t.Errorf("%d packages and tests, %v", len(known), err)
	}
}

func TestShardsTakeAboutAsLongAsEachOther(t *testing.T) {
	weights := map[string]float64{"A": 100, "B": 60, "C": 50, "D": 40, "E": 30, "F": 10, "G": 10}
	var names []string
	for name := range weights {
		names = append(names, name)
	}
	seen := map[string]bool{}
	for _, list := range divide(names, 3, func(name string) float64 { return weights[name] }) {
		total := 0.0
		for _, name := range list {
			seen[name] = true
			total += weights[name]
		}
		if total < 90 || total > 110 {
			t.Errorf("%q take %v together, want some 100", list, total)
		}
	}
	if len(seen) != len(weights) {
		t.Errorf("%d of %d tests run", len(seen), len(weights))
	}
}

func TestCPUTimeOfAProcessWhoseNameIsOdd(t *testing.T) {
	stat := "42 (a b) c) S 1 42 42 0 -1 4194560 100 200 0 0 150 50 25 75 20 0 9 0 12345 1000 100"
	if got := statCPU(stat); got != 3*time.Second {
		t.Errorf("%v, want 3s", got)
	}
}

func TestThisProcessHasTakenCPUTime(t *testing.T) {
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
	}
	if got := treeCPU(os.Getpid()); got <= 0 {
		t.Errorf("%v", got)
	}
}
