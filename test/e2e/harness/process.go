package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/until"
)

// Patience is how long a scenario waits for what must happen. It is no promise about speed: only a hang is longer.
const Patience = 60 * time.Second

// Eventually waits until what is so, and fails the test if it is not within Patience. It may miss what is so for a
// moment only: look for that in the log.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	EventuallyIn(t, Patience, what, so)
}

// EventuallyIn is Eventually with another bound.
func EventuallyIn(t testing.TB, within time.Duration, what string, so func() bool) {
	t.Helper()
	until.Within(t, within, what, so)
}

// Throughout checks again and again, for a while, that what is so.
func Throughout(t testing.TB, while time.Duration, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(while); time.Now().Before(end); <-tick.C {
		if !so() {
			t.Fatalf("not so: %s", what)
		}
	}
}

// Process is a process that a test started. It is killed when the test ends, if it still runs.
type Process struct {
	t       testing.TB
	name    string
	cmd     *exec.Cmd
	logFile string
	ended   chan struct{} // closed when it has ended
}

// Start starts a process. Its output is in a file, and shown if the test fails.
func Start(t testing.TB, name, binary string, args ...string) *Process {
	t.Helper()
	return start(t, name, exec.Command(binary, args...))
}

func start(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, name: name, cmd: cmd, logFile: log.Name(), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Nobody else's signals reach it, and it does not outlive a test binary that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
		_ = log.Close()
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("---- log of %s (pid %d):\n%s", name, p.PID(), p.tail())
		}
	})
	return p
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process. After SIGSTOP it returns when the process has stopped: one of its threads has
// to run first, which takes a while on a busy machine, and the others go on until then.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("signal %v to %s: %v", s, p.name, err)
	}
	if s == syscall.SIGSTOP {
		Eventually(p.t, p.name+" has stopped", func() bool { return p.stopped() || !p.Alive() })
	}
}

// stopped reports whether all threads of the process are stopped.
func (p *Process) stopped() bool {
	states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range states {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true // also where there is no /proc
}

// Kill ends the process by SIGKILL and returns when it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Wait waits for the process's end and returns its exit code, -1 if a signal ended it.
func (p *Process) Wait() int {
	p.t.Helper()
	return p.WaitIn(Patience)
}

// WaitIn is Wait with another bound.
func (p *Process) WaitIn(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.t.Fatalf("%s (pid %d) has not ended within %v", p.name, p.PID(), within)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ResidentMiB is what the process has in memory, and HugeMiB what is in huge pages of that, other than of files.
func (p *Process) ResidentMiB() int {
	p.t.Helper()
	return p.memory("Rss")
}

// HugeMiB is a part of ResidentMiB.
func (p *Process) HugeMiB() int {
	p.t.Helper()
	return p.memory("AnonHugePages")
}

// CPU is the CPU time that the process has used. It is as exact as the kernel counts, to 10 ms.
func (p *Process) CPU() (used time.Duration) {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces
	for _, field := range strings.Fields(rest)[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatal(err)
		}
		used += time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
	}
	return used
}

func (p *Process) memory(of string) (mib int) {
	p.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if kib, ok := strings.CutPrefix(line, of+":"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kib), " kB"))
			if err != nil {
				p.t.Fatal(err)
			}
			return n >> 10
		}
	}
	p.t.Fatalf("no %s of %s", of, p.name)
	return 0
}

// Log returns the process's output so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return fmt.Sprintf("no log: %v", err)
	}
	return string(b)
}

// Lines returns the lines of the log so far that contain all of the given texts.
func (p *Process) Lines(texts ...string) []string {
	var found []string
lines:
	for line := range strings.Lines(p.Log()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

// tail is the end of the log, which tells most.
func (p *Process) tail() string {
	const most = 20000
	log := p.Log()
	return log[max(0, len(log)-most):]
}

// FreePorts returns loopback ports that nobody listens on.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	ports, err := freePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// FreePortsInARow returns the first of n consecutive loopback ports that nobody listens on.
func FreePortsInARow(t testing.TB, n int) (first int) {
	t.Helper()
	first, err := portsInARow(n)
	if err != nil {
		t.Fatal(err)
	}
	return first
}
