package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAChangeRunsWhatItTouchesOrElseOneInTurn(t *testing.T) {
	some := []part{
		{"a", []string{"pkg/a/", "go.mod"}, 10},
		{"b", []string{"pkg/b/"}, 20},
		{"c", nil, 30},
	}
	for _, c := range []struct {
		what      string
		files     []string
		turn      int
		minutes   float64
		run, left []string
	}{
		{what: "nothing that a part is about: the first turn", files: []string{"docs/x.md", "pkg/ab/x.go"}, minutes: 60, run: []string{"a"}},
		{what: "the next turn", turn: 1, minutes: 60, run: []string{"b"}},
		{what: "a part that only turns run", turn: 5, minutes: 60, run: []string{"c"}},
		{what: "a file that is named", files: []string{"go.mod"}, turn: 1, minutes: 60, run: []string{"a"}},
		{what: "a file of that name elsewhere", files: []string{"pkg/b/go.mod"}, turn: 2, minutes: 60, run: []string{"b"}},
		{what: "the most touched first", files: []string{"pkg/a/x.go", "pkg/b/x.go", "pkg/b/y.go"}, minutes: 60, run: []string{"b", "a"}},
		{what: "as far as there is time", files: []string{"pkg/a/x.go", "pkg/b/x.go", "pkg/b/y.go"}, minutes: 25, run: []string{"b"}, left: []string{"a"}},
		{what: "a shorter one that fits", files: []string{"pkg/a/x.go", "pkg/b/x.go", "pkg/b/y.go"}, minutes: 15, run: []string{"a"}, left: []string{"b"}},
		{what: "no time", turn: 2, minutes: 5, left: []string{"c"}},
	} {
		run, left := choose(some, c.files, c.turn, c.minutes)
		names := func(all []chosenPart) (names []string) {
			for _, p := range all {
				names = append(names, p.target)
			}
			return names
		}
		if !slices.Equal(names(run), c.run) || !slices.Equal(names(left), c.left) {
			t.Errorf("%s: it runs %q and leaves out %q, want %q and %q", c.what, names(run), names(left), c.run, c.left)
		}
	}
}

func TestEachPartHasItsTurnWithinAsManyChanges(t *testing.T) {
	seen := map[string]bool{}
	for turn := range len(parts) {
		run, _ := choose(parts, nil, turn+7, 1000)
		seen[run[0].target] = true
	}
	if len(seen) != len(parts) {
		t.Errorf("%d of %d parts had a turn", len(seen), len(parts))
	}
}

// What a part is called is a target, and what it is about is there: a directory that was renamed would never be touched
// again.
func TestPartsAreTargetsAndAreAboutFilesThatExist(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Concat(parts, always) {
		target, _, _ := strings.Cut(p.target, " ")
		if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
			t.Errorf("the Makefile has no target %s", target)
		}
		for _, file := range p.touched {
			if _, err := os.Stat(filepath.Join("../../..", file)); err != nil {
				t.Errorf("%s is about what is not there: %v", p.target, err)
			}
		}
	}
}

// All of it fits: what each change has to pass, and the longest part.
func TestThePlanFitsIntoAnHour(t *testing.T) {
	total := 0.0
	for _, p := range always {
		total += p.minutes
	}
	longest := slices.MaxFunc(parts, func(a, b part) int { return int(a.minutes - b.minutes) })
	if total > 50 || total+longest.minutes > 80 {
		t.Errorf("%v minutes for each change, and up to %v more for %s", total, longest.minutes, longest.target)
	}
}

func TestWhatHappensLaterDoesNotChangeWhichTurnAChangeWas(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var history []commit
	for i, minutes := range []int{0, 20, 50, 200, 220, 900, 1000, 1010} {
		history = append(history, commit{fmt.Sprint(i), began.Add(time.Duration(minutes) * time.Minute)})
	}
	for n, want := range []int{0, 1, 1, 1, 2, 2, 3, 4, 4} {
		if got := turnOf(history[:n]); got != want {
			t.Errorf("after %d commits there were %d changes, want %d", n, got, want)
		}
	}
	for n, want := range []string{"", "", "", "", "", "", "4", "4", "4"} {
		if got := baseOf(history[:n]); got != want {
			t.Errorf("the change that ends with commit %d begins after %q, want %q", n-1, got, want)
		}
	}
}

func TestAChangeIsReadFromGit(t *testing.T) {
	root := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(date string, args ...string) {
		command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.hooksPath=/dev/null"}, args...)...)
		command.Dir, command.Env = root, append(os.Environ(), "GIT_COMMITTER_DATE="+date, "GIT_AUTHOR_DATE="+date)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	run("", "init", "-q")
	for name, date := range map[string]string{"old": "2026-01-01T00:00:00Z"} {
		write(name)
		run(date, "add", ".")
		run(date, "commit", "-q", "-m", name)
	}
	for _, name := range []string{"new", "newer"} {
		write(name)
		run("2026-01-02T00:00:00Z", "add", ".")
		run("2026-01-02T00:00:00Z", "commit", "-q", "-m", name)
	}
	write("old") // unchanged
	history, err := readHistory(t.Context(), root)
	if err != nil || len(history) != 3 {
		t.Fatalf("%v, %v", history, err)
	}
	if files, err := changedFiles(t.Context(), root, baseOf(history)); err != nil || !slices.Equal(files, []string{"new", "newer"}) {
		t.Errorf("it touches %q, %v", files, err)
	}
	if files, err := changedFiles(t.Context(), root, ""); err != nil || len(files) != 3 {
		t.Errorf("of no commit it touches %q, %v", files, err)
	}
}
