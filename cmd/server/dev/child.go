package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// parentPipe is the environment variable that tells a child which of its file descriptors is a pipe from its parent.
// The pipe ends when the parent ends, however the parent dies. The child must then stop.
const parentPipe = "REGENT_PARENT_PIPE"

// parentPipeFD is the first file descriptor after stdin, stdout and stderr.
const parentPipeFD = 3

// stopTimeout is how long a child may take to stop. It is longer than a replica's own shutdown timeout at default
// timings.
const stopTimeout = 45 * time.Second

// exitUsage is the exit code of a child whose flags are invalid.
const exitUsage = 2

// child is a replica or a front. It has at most one process at a time.
type child struct {
	name, url string
	program   string // what runs; empty: this program
	args      []string
	out       *output
	log       string                          // the file with the whole log
	ready     func(ctx context.Context) error // returns nil once the child is ready
	fail      context.CancelCauseFunc
	again     chan struct{} // capacity 1: a request to restart
	deaf      *atomic.Bool  // no terminal, in which somebody could press Enter
	start     *start        // of the installation; nil: it is none
	ranBefore bool          // used by run only

	mu  sync.Mutex
	pid int // 0: no process runs
}

// running returns the pid of the replica's process, or 0 if none runs.
func (c *child) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// startAgain asks keep to start a new process, unless one runs.
func (c *child) startAgain() {
	if c.running() != 0 {
		return
	}
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// keep starts the process, and starts it again on each request after it has ended, until ctx ends.
func (c *child) keep(ctx context.Context) {
	for ctx.Err() == nil {
		state, err := c.run(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.fail(&fault{err})
			return
		case state.ExitCode() == exitUsage:
			c.fail(&fault{fmt.Errorf("%s was given an invalid flag, its last line says which: %w", c.name, ErrUsage)})
			return
		}
		c.out.say("%s (pid %d) has ended: %v. %s to start it again", c.name, state.Pid(), state, howToStart(c.deaf))
		select {
		case <-ctx.Done():
		case <-c.again:
		}
	}
}

// howToStart tells the user what to do so that children start whose processes have ended.
func howToStart(deaf *atomic.Bool) string {
	if deaf.Load() {
		return fmt.Sprintf("Run `kill -USR1 %d`", os.Getpid())
	}
	return "Press Enter"
}

// file returns the file of the program that runs.
func (c *child) file() (string, error) {
	if c.program != "" {
		return c.program, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find this program's file: %w", err)
	}
	return self, nil
}

// quoted returns text so that a shell takes it as one word.
func quoted(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// run starts the process and waits until it ends. When ctx ends, run asks the process to stop. It returns how the
// process ended.
func (c *child) run(ctx context.Context) (*os.ProcessState, error) {
	file, err := c.file()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer func() { _ = write.Close() }()

	cmd := exec.CommandContext(context.WithoutCancel(ctx), file, c.args...)
	cmd.Env = append(os.Environ(), parentPipe+"="+strconv.Itoa(parentPipeFD))
	cmd.ExtraFiles = []*os.File{read}
	// The child gets a process group of its own, so that a Ctrl-C in the terminal reaches only the parent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.program != "" {
		defer endsWithParent(cmd.SysProcAttr)()
	}
	lines := c.out.prefixed(c.name, c.log, c.start)
	defer lines.flush()
	cmd.Stdout, cmd.Stderr = lines, lines
	err = cmd.Start()
	_ = read.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.name, err)
	}
	c.set(cmd.Process.Pid)
	defer c.set(0)
	ended := make(chan struct{})
	alive, died := context.WithCancel(ctx)
	defer died()
	var beside sync.WaitGroup
	if c.ranBefore {
		c.out.say("%s is started again, pid %d", c.name, cmd.Process.Pid)
		beside.Go(func() { c.tellReady(alive, time.Now()) })
	}
	c.ranBefore = true
	beside.Go(func() { c.stop(ctx, cmd.Process, ended) })
	err = cmd.Wait()
	close(ended)
	died()
	beside.Wait()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("cannot wait for %s: %w", c.name, err)
	}
	return cmd.ProcessState, nil
}

// tellReady says when the child is ready, unless ctx ends first.
func (c *child) tellReady(ctx context.Context, began time.Time) {
	if c.ready(ctx) == nil {
		c.out.say("%s is ready again, after %v", c.name, time.Since(began).Round(100*time.Millisecond))
	}
}

func (c *child) set(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
}

// stop asks the process to stop when ctx ends, and kills it if it has not stopped after stopTimeout.
func (c *child) stop(ctx context.Context, process *os.Process, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		c.out.say("%s (pid %d) has not stopped within %v and is killed", c.name, process.Pid, stopTimeout)
		_ = process.Kill()
	}
}

// UntilParentEnds calls ended when the pipe from the parent process ends. It returns at once, and does nothing if this
// process was started without such a pipe.
func UntilParentEnds(ended func()) error {
	text, ok := os.LookupEnv(parentPipe)
	if !ok {
		return nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= int(os.Stderr.Fd()) {
		return fmt.Errorf("%s=%q is not the file descriptor of a pipe: unset the variable, only `regent dev` sets it", parentPipe, text)
	}
	pipe := os.NewFile(uintptr(fd), "parent")
	// The goroutine lives as long as the process, like the pipe.
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		ended()
	}()
	return nil
}
