package main

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

func TestWhatWaitsRunsBesideWhatComputes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	known := costs{
		"waits":    {Wall: 100 * time.Second, CPU: 20 * time.Second},
		"computes": {Wall: 50 * time.Second, CPU: 50 * time.Second},
		"both":     {Wall: 60 * time.Second, CPU: 100 * time.Second},
		"short":    {Wall: time.Second, CPU: time.Second},
		"little":   {Wall: 10 * time.Second, CPU: time.Second},
		"test/e2e": {Wall: 100 * time.Second, CPU: 130 * time.Second},
	}
	queue := func(names ...string) (all []runnable) {
		for _, n := range names {
			all = append(all, runnable{unit: unit{name: n}})
		}
		return all
	}
	running := func(names ...string) (all []unit) {
		for _, n := range names {
			all = append(all, unit{name: n})
		}
		return all
	}
	for _, c := range []struct {
		what      string
		queue     []runnable
		running   []unit
		compiling bool
		want      string
	}{
		{what: "the dearest first", queue: queue("short", "computes", "waits"), want: "waits"},
		{what: "what computes beside what waits", queue: queue("computes"), running: running("waits"), want: "computes"},
		{what: "two cores are enough for one that waits and two that compute, and a bit", queue: queue("short"), running: running("waits", "computes"), want: "short"},
		{what: "no more than the cores and a bit", queue: queue("short"), running: running("computes", "computes", "waits"), want: ""},
		{what: "a smaller one that fits", queue: queue("both", "short"), running: running("computes"), want: "short"},
		{what: "whatever there is, if nothing runs", queue: queue("both"), compiling: true, want: "both"},
		{what: "the compiler computes, too", queue: queue("both"), running: running("waits"), compiling: true, want: ""},
		{what: "nothing beside what peaks", queue: queue("short", "little"), running: running("test/e2e"), want: ""},
		{what: "nothing that peaks beside others", queue: queue("test/e2e", "short"), running: running("little"), want: "short"},
		{what: "nothing of nothing", want: ""},
	} {
		got := ""
		s := settings{costs: known}
		if at := s.next(c.queue, c.running, c.compiling); at >= 0 {
			got = c.queue[at].name
		}
		if got != c.want {
			t.Errorf("%s: %q runs next, want %q", c.what, got, c.want)
		}
	}
}

func TestABatchIsOfOneHomeInWhichNoNameIsTwice(t *testing.T) {
	units := []unit{
		{name: "a/loop", module: "."}, {name: "b/loop", module: "."}, {name: "c/loop", module: ".", race: true}, {name: "d", module: ".", race: true},
		{name: "m/loop", module: "m"},
	}
	for i := range batchSize {
		units = append(units, unit{name: "many/" + string(rune('a'+i)), module: "."})
	}
	units = housed(units)
	seen := map[string]bool{}
	for _, b := range (costs{}).batches(units) {
		if len(b) > batchSize {
			t.Errorf("%d units in a batch", len(b))
		}
		for _, u := range b {
			if seen[u.binary("")] || u.module != b[0].module || u.race != b[0].race || u.home != b[0].home {
				t.Errorf("%s is compiled beside %+v", u.name, b)
			}
			seen[u.binary("")] = true
		}
	}
	if len(seen) != len(units) {
		t.Errorf("%d of %d units are in batches", len(seen), len(units))
	}
}

// What an earlier run has left of a unit is not taken for what is there now.
func TestAUnitThatDoesNotCompileDoesNotRun(t *testing.T) {
	fails := errors.New("b.go:1: so it fails")
	b := batch{{name: "a"}, {name: "b"}, {name: "c"}}
	ready, took, err := compile(b, func(b batch) (time.Duration, error) {
		for _, u := range b {
			if u.name == "b" {
				return time.Second, fails
			}
		}
		return time.Second, nil
	})
	if !errors.Is(err, fails) || len(ready) != 2 || ready[0].name != "a" || ready[1].name != "c" || took != 4*time.Second {
		t.Errorf("%+v after %v, %v", ready, took, err)
	}
}

// Two runs at a time, of two checkouts perhaps, do not run each other's tests.
func TestARunBesideAnotherHasBinariesOfItsOwn(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // where other systems have it
	first, done, err := openBinaries()
	if err != nil {
		t.Fatal(err)
	}
	beside, doneBeside, err := openBinaries()
	if err != nil || beside == first {
		t.Errorf("%q and %q, %v", first, beside, err)
	}
	doneBeside()
	done()
	after, done, err := openBinaries()
	if err != nil || after != first {
		t.Errorf("after %q: %q, %v", first, after, err)
	}
	done()
}
