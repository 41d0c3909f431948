package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// scripted plays events of one package, a line each: action, test, and output.
func scripted(t *testing.T, end error, lines ...string) (output string, ok bool) {
	t.Helper()
	var out strings.Builder
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newReport(&out, func() time.Time { return now })
	r.total = 1
	u := unit{name: "pkg/a", path: module + "pkg/a"}
	r.started(u)
	for _, line := range lines {
		now = now.Add(time.Second)
		parts := strings.SplitN(line, " ", 3)
		e := event{Action: parts[0]}
		if len(parts) > 1 && parts[1] != "-" {
			e.Test = parts[1]
		}
		if len(parts) > 2 {
			e.Output = parts[2] + "\n"
		}
		r.event(u, e)
		if e.Action == "progress" {
			r.progress(1, true)
		}
	}
	r.ended(ended{unit: u, usage: usage{wall: time.Second, cpu: time.Second}, err: end})
	ok = r.sum(0)
	return out.String(), ok
}

func TestAFailureIsToldAtOnceWithItsOutputAndHowToRepeatIt(t *testing.T) {
	told, ok := scripted(t, errors.New("exit status 1"),
		"run TestGood", "output TestGood I0101 a log line", "pass TestGood",
		"run TestBad", "output TestBad I0101 a log line of the bad one", "output TestBad     bad_test.go:1: it is 2, want 3", "fail TestBad",
		"run TestLast", "pass TestLast")
	if ok {
		t.Error("it passes")
	}
	at, end := strings.Index(told, "FAIL: pkg/a TestBad"), strings.Index(told, "pkg/a: 3 tests")
	if at < 0 || end < at {
		t.Errorf("the failure is not told before the end of its package:\n%s", told)
	}
	for _, want := range []string{"bad_test.go:1: it is 2, want 3", "a log line of the bad one", "make test ONLY=pkg/a RUN='^TestBad$$'", "\n2 passed, 1 failed, 0 skipped\n"} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is missing in\n%s", want, told)
		}
	}
	if strings.Contains(told, "I0101 a log line\n") {
		t.Errorf("what a passing test logs is told:\n%s", told)
	}
}

func TestAPartThatFailsIsToldOnce(t *testing.T) {
	told, _ := scripted(t, errors.New("exit status 1"),
		"run TestTable", "run TestTable/one", "output TestTable/one         table_test.go:9: wrong", "output TestTable --- FAIL: TestTable (0.00s)",
		"fail TestTable/one", "fail TestTable")
	if n := strings.Count(told, "table_test.go:9"); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, told)
	}
	if want := "make test ONLY=pkg/a RUN='^TestTable$$/^one$$'"; !strings.Contains(told, want) || strings.Contains(told, "RUN='^TestTable$$'\n") {
		t.Errorf("want the line %s alone:\n%s", want, told)
	}
}

func TestAPackageThatEndsEarlyHasFailed(t *testing.T) {
	for what, lines := range map[string][]string{
		"in a test":     {"run TestPanics", "output TestPanics panic: no such thing"},
		"outside of it": {"run TestGood", "pass TestGood", "output - goleak: found unexpected goroutines"},
	} {
		told, ok := scripted(t, errors.New("exit status 2"), lines...)
		if ok || !strings.Contains(told, "make test ONLY=pkg/a") || !strings.Contains(told, " 1 failed") {
			t.Errorf("%s:\n%s", what, told)
		}
		for _, line := range lines {
			if parts := strings.SplitN(line, " ", 3); parts[0] == "output" && !strings.Contains(told, parts[2]) {
				t.Errorf("%s: %q is not told:\n%s", what, parts[2], told)
			}
		}
	}
}

func TestNothingPassesIfNothingRan(t *testing.T) {
	if told, ok := scripted(t, nil); ok {
		t.Errorf("a package without tests passes:\n%s", told)
	}
}

func TestWhatIsSkippedIsToldWithItsReason(t *testing.T) {
	told, ok := scripted(t, nil, "run TestGood", "pass TestGood", "run TestBrowser", "output TestBrowser     page_test.go:3: there is no browser", "skip TestBrowser")
	if !ok || !strings.Contains(told, "skipped: pkg/a TestBrowser: page_test.go:3: there is no browser") || !strings.Contains(told, "1 passed, 0 failed, 1 skipped") {
		t.Errorf("passes: %v\n%s", ok, told)
	}
}

func TestProgressNamesWhatRuns(t *testing.T) {
	told, _ := scripted(t, nil, "run TestQuick", "pass TestQuick", "run TestPaused", "pause TestPaused", "run TestSlow", "progress")
	if want := "0 of 1 packages done, 1 tests passed, 0 failed; compiling; running pkg/a (TestSlow 1s)"; !strings.Contains(told, want) {
		t.Errorf("%q is missing in\n%s", want, told)
	}
}

// Go says of a test that has parallel parts how long it took without them.
func TestATestTakesAsLongAsItsParallelParts(t *testing.T) {
	told, _ := scripted(t, nil, "run TestAll", "pause TestAll", "run TestQuick", "pass TestQuick", "cont TestAll", "run TestAll/one", "pause TestAll/one",
		"cont TestAll/one", "output TestAll/one I0101 a log line", "pass TestAll/one", "pass TestAll")
	if want := "6.0s  pkg/a TestAll\n"; !strings.Contains(told, want) {
		t.Errorf("%q is missing in\n%s", want, told)
	}
}

// A test whose parallel parts wait for those of others takes nothing meanwhile.
func TestOnlyWhatRunsIsChargedWithCPU(t *testing.T) {
	p := &packageReport{running: map[string]*testRun{
		"TestWaits": {}, "TestWaits/one": {paused: true}, "TestWaits/two": {paused: true},
		"TestWorks": {}, "TestWorks/one": {paused: true}, "TestWorks/two": {},
		"TestAlone": {}, "TestPaused": {paused: true},
	}}
	p.charge(10 * time.Second)
	for name, want := range map[string]time.Duration{"TestWaits": 0, "TestWorks": 5 * time.Second, "TestAlone": 5 * time.Second, "TestPaused": 0} {
		if got := p.running[name].cpu; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestOfLogsTheLastLinesAreKeptAndOfTestsAll(t *testing.T) {
	var kept tail
	kept.add("    a_test.go:1: first\n")
	for range 100 * logLines {
		kept.add("I0101 log\n")
	}
	kept.add("    a_test.go:2: cut ")
	kept.add("in two\n")
	text := kept.text()
	if !strings.Contains(text, "a_test.go:1: first") || !strings.Contains(text, "a_test.go:2: cut in two\n") || !strings.Contains(text, "earlier lines of logs are left out") {
		t.Errorf("%s", text)
	}
	if n := strings.Count(text, "I0101"); n < logLines || n > 2*logLines {
		t.Errorf("%d lines of logs", n)
	}
}
