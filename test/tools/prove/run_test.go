package main

import (
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

func TestABatchHasOneModuleOneDetectorAndNoNameTwice(t *testing.T) {
	units := []unit{
		{name: "a/loop", module: "."}, {name: "b/loop", module: "."}, {name: "c", module: "."}, {name: "d", module: ".", race: true}, {name: "e", module: "m"},
	}
	for i := range batchSize {
		units = append(units, unit{name: "many/" + string(rune('a'+i)), module: "."})
	}
	seen := 0
	for _, b := range (costs{}).batches(units) {
		names := map[string]bool{}
		if len(b.units) > batchSize {
			t.Errorf("%d units in a batch", len(b.units))
		}
		for _, u := range b.units {
			seen++
			base := u.name[len(u.name)-1:]
			if u.name == "a/loop" || u.name == "b/loop" {
				base = "loop"
			}
			if names[base] || u.module != b.units[0].module || u.race != b.units[0].race {
				t.Errorf("%s is compiled beside %+v", u.name, b.units)
			}
			names[base] = true
		}
	}
	if seen != len(units) {
		t.Errorf("%d of %d units are in batches", seen, len(units))
	}
}
