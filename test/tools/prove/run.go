package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/regent-project/regent/test/built"
)

// settings say how units run.
type settings struct {
	root     string
	binaries string   // where compiled tests are put
	filter   string   // -run
	args     []string // for each test binary
	count    int      // -count
	cases    int      // of each property; 0: a hundred, or fewCases
	costs    costs    // what units took before
}

// A usage is what a process and those that it waited for have used.
type usage struct {
	wall, cpu time.Duration
	memory    int64 // the largest process, in bytes
}

// runner compiles units and runs them side by side. Its loop owns all that it keeps; what compiles and runs sends to
// it.
type runner struct {
	settings
	report *report
	events chan happening
	ended  chan ended
	built  chan compiled
	left   int // units that have not ended
}

// happening is an event of a unit.
type happening struct {
	unit unit
	event
}

// ended is the end of a unit. An error says that its tests cannot be trusted to have run.
type ended struct {
	unit  unit
	usage usage
	err   error
}

// compiled is what has become of a batch.
type compiled struct {
	ready []runnable
	cpu   time.Duration
	err   error // some of it does not compile
}

// run compiles and runs units, and returns when all goroutines and processes that it started have ended.
func (r *runner) run(ctx context.Context, units []unit) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.events, r.ended, r.built = make(chan happening, 1000), make(chan ended), make(chan compiled)
	tool, err := converter(ctx)
	if err != nil {
		return err
	}
	parts, err := r.split(units)
	if err != nil {
		return err
	}
	var compiled []unit // one for each binary
	for _, p := range parts {
		r.left += len(p)
		compiled = append(compiled, p[0])
	}
	all := r.costs.batches(r.costs.dearestFirst(compiled))
	r.report.total = r.left
	go r.compile(ctx, all)
	compiling := len(all)
	var queue []runnable
	var running []unit
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	for compiling > 0 || len(running) > 0 || len(queue) > 0 {
		for len(queue) > 0 && ctx.Err() == nil {
			at := r.next(queue, running, compiling > 0)
			if at < 0 {
				break
			}
			b := queue[at]
			queue = slices.Delete(queue, at, at+1)
			running = append(running, b.unit)
			r.report.started(b.unit)
			go r.test(ctx, tool, b)
		}
		if ctx.Err() != nil {
			queue = nil
			if compiling == 0 && len(running) == 0 {
				break
			}
		}
		select {
		case c := <-r.built:
			compiling--
			for _, b := range c.ready {
				for _, p := range parts[b.compiled()] {
					queue = append(queue, runnable{unit: p, binary: b.binary})
				}
			}
			r.report.compiled(c)
		case t := <-r.events:
			r.report.event(t.unit, t.event)
		case e := <-r.ended:
			r.drain()
			running = slices.DeleteFunc(running, func(u unit) bool { return u.label() == e.unit.label() })
			r.left--
			r.report.ended(e)
		case <-tick.C:
			r.report.progress(r.left, compiling > 0)
		}
	}
	return ctx.Err()
}

// drain reports what has been sent already. The events of a unit are sent before its end.
func (r *runner) drain() {
	for {
		select {
		case t := <-r.events:
			r.report.event(t.unit, t.event)
		default:
			return
		}
	}
}

// compile compiles batch after batch: go uses all CPUs for each.
func (r *runner) compile(ctx context.Context, all []batch) {
	for _, b := range all {
		var c compiled
		if ctx.Err() == nil {
			var ready []unit
			ready, c.cpu, c.err = compile(b, func(b batch) (time.Duration, error) { return link(ctx, r.root, r.binaries, b) })
			for _, u := range ready {
				c.ready = append(c.ready, runnable{unit: u, binary: u.binary(r.binaries)})
			}
		}
		if ctx.Err() != nil {
			c.err = nil
		}
		r.built <- c
	}
}

// next chooses which of the compiled units runs next, or none (-1): the dearest for which there is CPU. Units that wait
// leave it to others, so more of these run at a time than there are CPUs.
func (s settings) next(queue []runnable, running []unit, compiling bool) int {
	free := cores() + spare
	if compiling {
		free -= compilerNeed
	}
	for _, u := range running {
		free -= s.need(u)
	}
	best := -1
	for i, b := range queue {
		if len(running) > 0 && s.need(b.unit) > free {
			continue
		}
		if best < 0 || s.costs.of(b.unit).Wall > s.costs.of(queue[best].unit).Wall {
			best = i
		}
	}
	return best
}

// need is how many CPUs a unit is promised.
func (s settings) need(u unit) float64 {
	if peak, ok := peaks[u.name]; ok {
		return min(peak, cores()) + spare
	}
	return s.costs.of(u).need()
}

// peaks are packages that need more than their average says, which is promised to them alone: their tests start
// several processes at a time, which work when all of them do, with leases that expire meanwhile. So on two CPUs
// nothing but the compiler runs beside the scenarios, and they disturb nothing.
var peaks = map[string]float64{"test/e2e": 2}

const (
	// compilerNeed is how many CPUs are left to the compiler while there is something to compile: it takes what is
	// idle.
	compilerNeed = 1
	// spare is how much more CPU than there is may be promised: needs are averages.
	spare = 0.25
	// progressPeriod is how often is told what happens.
	progressPeriod = 15 * time.Second
	// testTimeout bounds the tests of a package. They end by themselves, and name what hangs.
	testTimeout = 40 * time.Minute
	// killAfter is how much longer a process gets that does not end by itself.
	killAfter = time.Minute
)

// compilerNice is the compiler's priority: what is idle is enough for it, while tests wait for what processes do in
// real time.
const compilerNice = 10

// yield lowers the priority of a command that has been started as the leader of a group, and of all that it starts.
func yield(command *exec.Cmd, nice int) {
	// it takes longer, or disturbs: neither is worth an error
	_ = syscall.Setpriority(syscall.PRIO_PGRP, command.Process.Pid, nice)
}

// fewCases are packages with a property whose cases are dear, with how many of them each property gets. `make
// long-properties` has hundreds.
var fewCases = map[string]int{"pkg/controllers/leasecandidate": 25, "pkg/election": 40, "pkg/server/terms": 30}

// parallelTests is how many parallel tests of a package run at a time: these wait for half of their time.
const parallelTests = 3

// converter returns the path of test2json.
func converter(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, goCommand, "tool", "-n", "test2json").Output()
	if err != nil {
		return "", fmt.Errorf("go has no test2json: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// test runs a unit, and sends its events, and then its end.
func (r *runner) test(ctx context.Context, tool string, b runnable) {
	timeout := testTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+killAfter, errors.New("it did not end in time"))
	defer cancel()
	args := []string{"-t", "-p", b.path, b.binary, "-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + timeout.String(),
		"-test.parallel=" + strconv.Itoa(parallelTests), "-test.count=" + strconv.Itoa(r.count)}
	switch {
	case r.filter != "":
		args = append(args, "-test.run="+r.filter)
	case b.shard != "":
		args = append(args, "-test.run=^("+strings.Join(b.tests, "|")+")$")
	}
	if n := cmp.Or(r.cases, fewCases[b.name]); b.random && n > 0 {
		args = append(args, "-rapid.checks="+strconv.Itoa(n))
	}
	command := exec.CommandContext(ctx, tool, append(args, r.args...)...)
	command.Dir = b.dir
	// The race detector would wait for a second at the end of each process, for reports of what still runs: goleak
	// says that nothing does.
	command.Env = append(os.Environ(), "PWD="+command.Dir, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"), built.Variable+"=1")
	// What the tests started ends with them, whatever becomes of them.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	began := time.Now()
	err := r.followed(command, b.unit)
	if ctx.Err() != nil {
		err = fmt.Errorf("ended from outside: %w", context.Cause(ctx))
	}
	e := ended{unit: b.unit, usage: usage{wall: time.Since(began)}, err: err}
	if state := command.ProcessState; state != nil {
		e.usage.cpu = state.UserTime() + state.SystemTime()
		if used, ok := state.SysUsage().(*syscall.Rusage); ok {
			e.usage.memory = used.Maxrss * 1024
		}
	}
	r.ended <- e
}

func (r *runner) followed(command *exec.Cmd, u unit) error {
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	command.Stderr = command.Stdout
	if err := command.Start(); err != nil {
		return fmt.Errorf("cannot start its tests: %w", err)
	}
	beside := map[string]bool{} // parts that run beside others
	err = follow(out, func(e event) {
		if e.Action == "cont" {
			beside[e.Test] = true
		}
		if e.Test != "" && e.Action != "output" && (beside[e.Test] || !strings.Contains(e.Test, "/")) {
			e.cpu = treeCPU(command.Process.Pid)
		}
		r.events <- happening{u, e}
	})
	err = errors.Join(err, command.Wait())
	// Processes that a test has left behind would disturb others.
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	return err
}
