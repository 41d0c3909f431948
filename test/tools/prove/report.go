package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// report tells what happens, as it happens, and sums up. It belongs to the runner's loop.
type report struct {
	out      io.Writer
	now      func() time.Time
	began    time.Time
	total    int // units
	packages map[string]*packageReport
	broken   int           // batches that do not compile
	compiler time.Duration // CPU
	tests    []testResult
	failures []failure
	skipped  []testResult
}

// packageReport is what is known of one package.
type packageReport struct {
	unit    unit
	began   time.Time
	usage   usage
	passed  int
	failed  int
	over    bool
	running map[string]*testRun
	loose   tail          // output that belongs to no test
	charged time.Duration // CPU time that tests have been charged with
}

// testRun is a test that has not ended.
type testRun struct {
	began  time.Time
	paused bool
	output tail
	cpu    time.Duration
	parent bool // a part of it has failed, and was told
}

// testResult is a test that has ended.
type testResult struct {
	unit      unit
	name      string
	wall, cpu time.Duration
	why       string // it was skipped, or failed
}

// failure is what has failed, and how to see it again.
type failure struct{ what, repeat string }

func newReport(out io.Writer, now func() time.Time) *report {
	return &report{out: out, now: now, began: now(), packages: map[string]*packageReport{}}
}

func (r *report) say(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

func (r *report) started(u unit) {
	r.packages[u.label()] = &packageReport{unit: u, began: r.now(), running: map[string]*testRun{}}
}

// compiled takes what has become of a batch. What does not compile is told at once.
func (r *report) compiled(c compiled) {
	r.compiler += c.cpu
	if c.err != nil {
		r.broken++
		r.say("FAIL: it does not compile: %v", c.err)
	}
}

// event takes an event of a package. What has failed is told at once.
func (r *report) event(u unit, e event) {
	p := r.packages[u.label()]
	if e.Test == "" {
		if e.Action == "output" {
			p.loose.add(e.Output)
		}
		return
	}
	if e.cpu > 0 {
		p.charge(e.cpu)
	}
	t := p.running[e.Test]
	if t == nil {
		t = &testRun{began: r.now()}
		p.running[e.Test] = t
	}
	switch e.Action {
	case "output":
		if !framing(e.Output) {
			t.output.add(e.Output)
		}
	case "pause":
		t.paused = true
	case "cont":
		t.paused, t.began = false, r.now()
	case "pass", "fail", "skip":
		delete(p.running, e.Test)
		// What Go says of a test leaves out its parallel parts.
		took := max(time.Duration(e.Elapsed*float64(time.Second)), r.now().Sub(t.began))
		r.result(p, t, testResult{unit: u, name: e.Test, wall: took, cpu: t.cpu}, e.Action)
	}
}

// charge charges the tests that run with the CPU time that the unit has taken since the last time, each with the same
// part of it: what a test takes that runs beside others is an estimate. A test whose parts all wait for their turn does
// not run.
func (p *packageReport) charge(cpu time.Duration) {
	parts := map[string]bool{} // of tests: whether one of them runs
	for name, t := range p.running {
		if above, _, part := strings.Cut(name, "/"); part {
			parts[above] = parts[above] || !t.paused
		}
	}
	var at []*testRun
	for name, t := range p.running {
		works, divided := parts[name]
		if _, _, part := cutLast(name); !part && !t.paused && (works || !divided) {
			at = append(at, t)
		}
	}
	for _, t := range at {
		t.cpu += (cpu - p.charged) / time.Duration(len(at))
	}
	p.charged = cpu
}

func (r *report) result(p *packageReport, t *testRun, result testResult, action string) {
	above, _, part := cutLast(result.name)
	switch action {
	case "pass":
		p.passed++
	case "skip":
		result.why = reason(t.output.text())
		r.skipped = append(r.skipped, result)
	case "fail":
		if p.failed++; part && p.running[above] != nil {
			p.running[above].parent = true
		}
		r.tell(p, t, result)
	}
	if !part {
		r.tests = append(r.tests, result)
	}
}

// tell tells of a test that has failed, with what it printed. One of which only parts have failed says nothing more.
func (r *report) tell(p *packageReport, t *testRun, result testResult) {
	if t.parent && !t.output.says() {
		return
	}
	r.say("FAIL: %s %s (%.1fs)", p.unit.label(), result.name, result.wall.Seconds())
	r.print(t.output)
	r.failures = append(r.failures, failure{p.unit.name + " " + result.name, repeat(p.unit, result.name)})
}

func (r *report) print(t tail) {
	for line := range strings.Lines(foldLeaks(t.text())) {
		r.say("    %s", strings.TrimSuffix(line, "\n"))
	}
}

// repeat is the line that runs a test, or all of a package, again.
func repeat(u unit, test string) string {
	line := "make test ONLY=" + u.name
	if test == "" {
		return line
	}
	var parts []string
	for part := range strings.SplitSeq(test, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$$")
	}
	return line + " RUN='" + strings.Join(parts, "/") + "'"
}

// ended takes the end of a package. Tests of it that have not ended have failed: the process died, or was killed.
func (r *report) ended(e ended) {
	p := r.packages[e.unit.label()]
	p.over, p.usage = true, e.usage
	if errors.Is(e.err, context.Canceled) {
		r.say("%s ended %s: somebody has interrupted it", r.at(), e.unit.label())
		return
	}
	unfinished := slices.Sorted(maps.Keys(p.running))
	for _, name := range unfinished {
		t := p.running[name]
		p.failed++
		r.say("FAIL: %s %s: it has not ended", e.unit.label(), name)
		r.print(t.output)
		r.failures = append(r.failures, failure{e.unit.name + " " + name, repeat(e.unit, name)})
	}
	whole := e.err != nil && p.failed == 0 // the package fails, and none of its tests
	if whole {
		p.failed++
		r.failures = append(r.failures, failure{e.unit.name, repeat(e.unit, "")})
	}
	if whole || len(unfinished) > 0 {
		r.say("FAIL: %s: %v", e.unit.label(), e.err)
		r.print(p.loose)
	}
	word := "ok"
	if p.failed > 0 {
		word = "FAIL"
	}
	r.say("%s %-4s %s: %d tests in %s, %s of CPU", r.at(), word, e.unit.label(), p.passed+p.failed, seconds(e.usage.wall), seconds(e.usage.cpu))
}

// at is the time since the beginning.
func (r *report) at() string {
	d := r.now().Sub(r.began).Round(time.Second)
	return fmt.Sprintf("[%d:%02d]", int(d.Minutes()), int(d.Seconds())%60)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// progress tells how far it is, and what runs, the longest first.
func (r *report) progress(left int, compiling bool) {
	passed, failed := r.counts()
	line := fmt.Sprintf("%s %d of %d packages done, %d tests passed, %d failed", r.at(), r.total-left, r.total, passed, failed)
	if compiling {
		line += "; compiling"
	}
	var running []string
	for _, path := range slices.Sorted(maps.Keys(r.packages)) {
		if p := r.packages[path]; !p.over {
			running = append(running, p.unit.label()+p.longest(r.now()))
		}
	}
	if len(running) > 0 {
		line += "; running " + strings.Join(running, ", ")
	}
	r.say("%s", line)
}

// longest names the tests of a package that run for the longest time.
func (p *packageReport) longest(now time.Time) string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(p.running)), func(n string) bool { return p.running[n].paused || strings.Contains(n, "/") })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(p.running[a].began.Compare(p.running[b].began), strings.Compare(a, b))
	})
	var some []string
	for _, n := range names[:min(2, len(names))] {
		some = append(some, fmt.Sprintf("%s %.0fs", n, now.Sub(p.running[n].began).Seconds()))
	}
	if len(some) == 0 {
		return ""
	}
	return " (" + strings.Join(some, ", ") + ")"
}

func (r *report) counts() (passed, failed int) {
	for _, p := range r.packages {
		passed, failed = passed+p.passed, failed+p.failed
	}
	return passed, failed
}

// slowestTold is how many of the slowest are told in the end.
const slowestTold = 10

// sum tells everything once more that somebody has to know, and reports whether all passed. Its last line is the one by
// which CI counts tests.
func (r *report) sum(notRun int) bool {
	passed, failed := r.counts()
	var used usage
	for _, p := range r.packages {
		used.cpu += p.usage.cpu
	}
	r.say("")
	r.say("The slowest tests:")
	slices.SortFunc(r.tests, func(a, b testResult) int { return cmp.Compare(b.wall, a.wall) })
	for _, t := range r.tests[:min(slowestTold, len(r.tests))] {
		r.say("%8s  %s %s", seconds(t.wall), t.unit.name, t.name)
	}
	r.say("The packages that took most of the CPU:")
	dearest := slices.SortedFunc(maps.Values(r.packages), func(a, b *packageReport) int { return cmp.Compare(b.usage.cpu, a.usage.cpu) })
	for _, p := range dearest[:min(slowestTold, len(dearest))] {
		r.say("%8s  %s, in %s", seconds(p.usage.cpu), p.unit.label(), seconds(p.usage.wall))
	}
	for _, t := range r.skipped {
		r.say("skipped: %s %s: %s", t.unit.name, t.name, t.why)
	}
	r.say("%s: tests took %s of CPU, the compiler %s", r.at(), seconds(used.cpu), seconds(r.compiler))
	if len(r.failures) > 0 {
		r.say("What failed, with the line that repeats it:")
	}
	for _, f := range r.failures {
		r.say("  %s\n      %s", f.what, f.repeat)
	}
	if notRun > 0 {
		r.say("%d packages have not run", notRun)
	}
	failed += r.broken
	r.say("%d passed, %d failed, %d skipped", passed, failed, len(r.skipped))
	return failed == 0 && notRun == 0 && passed > 0
}

// reason is why a test says that it is skipped.
func reason(output string) string {
	var why string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--- ") && line != "" {
			why = line
		}
	}
	return why
}

// cutLast cuts a test's name at its last slash. A test has none.
func cutLast(name string) (above, last string, part bool) {
	at := strings.LastIndexByte(name, '/')
	if at < 0 {
		return "", name, false
	}
	return name[:at], name[at+1:], true
}
