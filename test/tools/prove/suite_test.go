package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhatStartsGoroutinesRunsWithTheRaceDetector(t *testing.T) {
	for what, c := range map[string]struct {
		code string
		race bool
	}{
		"a table":             {"func f() int { return 1 }", false},
		"a go statement":      {"func f() { go f() }", true},
		"a group":             {"func f(g interface{ Go(func()) }) { g.Go(f2) }\nfunc f2() {}", true},
		"a parallel test":     {"func f(t interface{ Parallel() }) { t.Parallel() }", true},
		"what is shared":      {"import \"sync\"\nvar m sync.Mutex", true},
		"what is counted":     {"import \"sync/atomic\"\nvar n atomic.Int64", true},
		"a word of that name": {"// go f()\nvar Go = 1", false},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+c.code, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasGoroutines(file); got != c.race {
			t.Errorf("%s: %v, want %v", what, got, c.race)
		}
	}
}

// A package whose tests nobody runs is found here, whichever module it is in.
func TestEachPackageWithTestsIsRunOrHasATargetOfItsOwn(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	units, err := readSuite(t.Context(), root, true)
	if err != nil {
		t.Fatal(err)
	}
	race := map[string]bool{}
	for _, u := range units {
		race[u.name] = u.race
	}
	for name, want := range map[string]bool{"pkg/server": true, "pkg/election": true, "pkg/election/perterm": true, "test/embed": false, "test/e2e": false} {
		if got, there := race[name]; !there || got != want {
			t.Errorf("%s: with the race detector: %v, there: %v", name, got, there)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "*/*/*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for pattern := "*/*/*/*_test.go"; pattern != "*/*/*/*/*/*/*/*_test.go"; pattern = "*/" + pattern {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	if len(files) < 300 {
		t.Fatalf("only %d files with tests", len(files))
	}
	for _, file := range files {
		directory, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		if directory = filepath.ToSlash(directory); slices.Contains(apart, directory) || len(directory) > 3 && directory[:4] == "bin/" {
			continue
		}
		if _, there := race[directory]; !there {
			t.Errorf("nobody runs the tests in %s", directory)
		}
	}
}

func TestPatternsChooseDirectories(t *testing.T) {
	units := []unit{{name: "pkg/a"}, {name: "pkg/a/b"}, {name: "pkg/ab"}}
	for pattern, want := range map[string]int{"pkg/a": 1, "./pkg/a/": 1, "pkg/a/...": 2, "./...": 3, "pkg/...": 3, module + "pkg/ab": 1} {
		if got, err := choosePackages(units, []string{pattern}); err != nil || len(got) != want {
			t.Errorf("%s chooses %v, %v; want %d", pattern, got, err, want)
		}
	}
	if _, err := choosePackages(units, []string{"pkg/c"}); err == nil {
		t.Error("a directory without tests is no error")
	}
	if got, err := choosePackages(units, nil); err != nil || len(got) != 3 {
		t.Errorf("nothing chooses %v, %v", got, err)
	}
}
