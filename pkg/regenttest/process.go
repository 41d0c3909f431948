package regenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that is waited for. It is no promise about speed: only a hang is longer.
const patience = 2 * time.Minute

// Process is an etcd, a replica or a front: a process of the program regent, on a port that it keeps. Its faults fail
// the test if they make no sense, such as a pause of a process that has been killed. They are for one goroutine at a
// time.
//
//	           Kill, Stop              Pause
//	ended  <-----------------  runs  --------->  paused
//	       ----------------->        <---------
//	            Restart                Resume
//
// A process that runs or is paused can be cut off, until Heal. Kill ends one that is paused, too.
//
// A process that ends by itself fails the test, unless it is started again.
type Process struct {
	name, program string
	args          []string
	// portFlag is the flag with the port on which it listens, and port that port. 0, for an etcd: any.
	portFlag string
	port     int
	log      string
	// said is a file that it writes when it serves; empty: none. What an earlier run has written is removed.
	said string
	// in are the links that lead to it, out those that lead from it.
	in, out []*link
	// ready returns nil once it serves. It is asked again and again.
	ready func(ctx context.Context, p *Process) error

	mu     sync.Mutex
	run    *run // nil: it was never started
	serves bool // it has been ready since it was started
	paused bool
	cut    bool
}

// run is a process of the system.
type run struct {
	process *os.Process
	ended   chan struct{}
	state   *os.ProcessState // once it has ended
	asked   bool             // to end
	seen    int64            // where its log begins
}

func (r *run) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Name is as in the logs.
func (p *Process) Name() string { return p.name }

// PID is that of the process now, or of the last one.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run.process.Pid
}

// Log is all that it has logged, in all its runs.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends it as kill -9 does: it can do nothing about it. It returns when the process has ended.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	must(t, p.end(syscall.SIGKILL))
}

// Stop asks it to end, as an operator does, and returns when it has: a leader has handed over, and requests were
// answered.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	must(t, p.end(syscall.SIGTERM))
}

// Restart starts it again, after it has ended, and returns when it serves.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	if p.runs() {
		must(t, fmt.Errorf("%s runs already: Kill or Stop it before Restart", p.name))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, p.serve(ctx))
}

// Pause stops it where it is, as SIGSTOP does: it says nothing and notices nothing, until Resume. It returns when the
// process has stopped.
func (p *Process) Pause(t testing.TB) {
	t.Helper()
	must(t, p.pause(t.Context()))
}

// Resume has it go on after Pause. It does not know that time has passed.
func (p *Process) Resume(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused {
		must(t, fmt.Errorf("%s is not paused: nothing to Resume", p.name))
	}
	must(t, p.run.process.Signal(syscall.SIGCONT))
	p.paused = false
}

// Cut takes the network from it: connections stay open, and nothing passes any more, between it and clients, its etcd
// (of an etcd: its replicas), other shards and the front. Only what the replicas of a shard hear of each other's lives
// still passes.
func (p *Process) Cut(t testing.TB) {
	t.Helper()
	must(t, p.setCut(true))
}

// Heal gives it the network back after Cut. What was on its way arrives now.
func (p *Process) Heal(t testing.TB) {
	t.Helper()
	must(t, p.setCut(false))
}

// start starts it, and does not wait.
func (p *Process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	if p.said != "" {
		_ = os.Remove(p.said)
	}
	r := &run{ended: make(chan struct{})}
	if info, err := log.Stat(); err == nil {
		r.seen = info.Size()
	}
	cmd := exec.Command(p.program, append(p.args, fmt.Sprintf("--%s=%d", p.portFlag, p.port))...) //nolint:gosec,noctx // the test's program, which ends with it
	cmd.Stdout, cmd.Stderr = log, log
	if err := r.begin(cmd); err != nil {
		return fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	p.run, p.serves, p.paused = r, false, false
	return nil
}

// parentPipe tells a regent which of its file descriptors is a pipe from the process that has started it: when that
// ends, however it ends, the regent ends, too.
const parentPipe = "REGENT_PARENT_PIPE"

// begin starts the process, and waits for its end beside.
func (r *run) begin(cmd *exec.Cmd) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	cmd.ExtraFiles = []*os.File{read}
	cmd.Env = append(os.Environ(), parentPipe+"="+strconv.Itoa(3)) // the first after stdin, stdout and stderr
	// A group of its own: what is typed in the test's terminal does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := make(chan error)
	go func() {
		defer close(r.ended)
		defer endsWithParent(cmd.SysProcAttr)()
		defer func() { _ = write.Close() }()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait()
		r.state = cmd.ProcessState
	}()
	if err := <-started; err != nil {
		<-r.ended
		return err
	}
	r.process = cmd.Process
	return nil
}

// serve starts it, and returns when it serves.
func (p *Process) serve(ctx context.Context) error {
	if err := p.start(); err != nil {
		return err
	}
	return p.awaitReady(ctx)
}

func (p *Process) awaitReady(ctx context.Context) error {
	err := until(ctx, p.name+" serves", func(ctx context.Context) error {
		p.mu.Lock()
		r := p.run
		p.mu.Unlock()
		if r.hasEnded() {
			return &final{p.endedEarly(r)}
		}
		return p.ready(ctx, p)
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serves = true
	return nil
}

// endedEarly says how it ended that should have served.
func (p *Process) endedEarly(r *run) error {
	log := p.logOf(r)
	what := r.state.String()
	if r.state.ExitCode() == exitUsage {
		what = "a flag is wrong"
	}
	err := fmt.Errorf("%s (%s %s) has ended while it was starting: %s: its last lines:\n%s", p.name, p.program, p.args[0], what, lastLines(log, 5))
	if strings.Contains(log, "address already in use") {
		return errors.Join(errPortTaken, err)
	}
	return err
}

// exitUsage is the exit code of a regent whose flags are wrong.
const exitUsage = 2

// errPortTaken is wrapped if somebody else was faster.
var errPortTaken = errors.New("its port is taken")

// logOf is what it has logged in a run, and after it.
func (p *Process) logOf(r *run) string {
	text := p.Log()
	return text[min(r.seen, int64(len(text))):]
}

func (p *Process) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && !p.run.hasEnded()
}

// answers reports whether a client that asks it gets an answer, as far as the test knows.
func (p *Process) answers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && !p.run.hasEnded() && !p.run.asked && p.serves && !p.paused && !p.cut
}

// end ends it by a signal, and returns when it has ended.
func (p *Process) end(by syscall.Signal) error {
	p.mu.Lock()
	r, paused := p.run, p.paused
	if r.hasEnded() {
		p.mu.Unlock()
		return fmt.Errorf("%s has ended already: Restart starts it again", p.name)
	}
	if paused && by != syscall.SIGKILL {
		p.mu.Unlock()
		return fmt.Errorf("%s is paused and cannot hear: Resume it before Stop, or Kill it", p.name)
	}
	r.asked = true
	p.mu.Unlock()
	if err := r.process.Signal(by); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to %s: %w", by, p.name, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
		return fmt.Errorf("%s (pid %d) has not ended within %v of signal %v", p.name, r.process.Pid, patience, by)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	return nil
}

func (p *Process) pause(ctx context.Context) error {
	p.mu.Lock()
	r, paused := p.run, p.paused
	p.mu.Unlock()
	switch {
	case r.hasEnded():
		return fmt.Errorf("%s has ended: only what runs can Pause", p.name)
	case paused:
		return fmt.Errorf("%s is paused already", p.name)
	}
	if err := r.process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := until(ctx, p.name+" has stopped", func(context.Context) error {
		if !isPaused(r.process.Pid) {
			return errors.New("one of its threads goes on")
		}
		return nil
	}); err != nil {
		return err
	}
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
	p.leave()
	return nil
}

func (p *Process) setCut(cut bool) error {
	p.mu.Lock()
	was := p.cut
	p.cut = cut
	p.mu.Unlock()
	switch {
	case was && cut:
		return fmt.Errorf("%s is cut off already", p.name)
	case !was && !cut:
		return fmt.Errorf("%s is not cut off: nothing to Heal", p.name)
	}
	for _, l := range append(append([]*link{}, p.in...), p.out...) {
		l.setCut(p, cut)
	}
	if cut {
		p.leave()
	}
	return nil
}

// leave closes the connections that can go another way.
func (p *Process) leave() {
	for _, l := range p.in {
		l.closeBalanced()
	}
}

// stop ends it, if it runs, and says whether it had ended by itself.
func (p *Process) stop() (surprise error) {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	if r.hasEnded() && !r.asked {
		surprise = fmt.Errorf("%s (pid %d) has ended by itself: %v", p.name, r.process.Pid, r.state)
	}
	_ = r.process.Kill()
	<-r.ended
	return surprise
}

// until returns nil once something is so, and an error that says what was waited for if ctx ends before, or if it can
// never be so.
func until(ctx context.Context, what string, so func(ctx context.Context) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last := error(nil)
	for {
		err := so(ctx)
		if err == nil {
			return nil
		}
		if never := (&final{}); errors.As(err, &never) {
			return never.error
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w: %w", what, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// final is an error after which nothing more is waited for.
type final struct{ error }

func (f *final) Unwrap() error { return f.error }

// must fails the test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("regenttest: %v", err)
	}
}

// lastLines returns the end of a text, indented.
func lastLines(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-most):], "\n    ")
}
