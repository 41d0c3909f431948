package dev

import (
	"bytes"
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

// ParentPipe is the environment variable that tells a replica which of its file descriptors is a pipe from its parent.
// It ends when the parent does, however that happens, and so should the replica.
const ParentPipe = "REGENT_PARENT_PIPE"

// parentPipeFD is what follows stdin, stdout and stderr.
const parentPipeFD = 3

// stopTimeout is how long a replica may take to stop: longer than its own shutdown timeout at default timings.
const stopTimeout = 45 * time.Second

// exitUsage is the exit code of a replica that did not understand its flags.
const exitUsage = 2

// child is one replica process, one after the other.
type child struct {
	name, url string
	args      []string
	out       *output
	leads     func(c *child, epoch int)
	again     chan struct{} // capacity 1
	deaf      *atomic.Bool  // nobody can ask for anything any more
	ranBefore bool          // run's alone

	mu  sync.Mutex
	pid int // 0 if none runs
}

// running returns the pid of the child's process; 0 if none runs.
func (c *child) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// startAgain makes keep start a process that has ended anew.
func (c *child) startAgain() {
	if c.running() != 0 {
		return
	}
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// howToStart says how a process that has ended is started again.
func (c *child) howToStart() string {
	if !c.deaf.Load() {
		return "Press Enter to start it again"
	}
	command := []string{"regent"}
	if self, err := os.Executable(); err == nil {
		command[0] = quoted(self)
	}
	for _, arg := range c.args {
		command = append(command, quoted(arg))
	}
	return "There is no input to press Enter in, so start it in another terminal: " + strings.Join(command, " ")
}

// quoted is text as a shell takes it for one word.
func quoted(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// run runs the process once: until it ends, or ctx does, when it is asked to stop. It returns how the process ended.
func (c *child) run(ctx context.Context) (*os.ProcessState, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program's file: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer func() { _ = write.Close() }()

	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, c.args...)
	cmd.Env = append(os.Environ(), ParentPipe+"="+strconv.Itoa(parentPipeFD))
	cmd.ExtraFiles = []*os.File{read}
	// A Ctrl-C in the terminal is the parent's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	lines := c.out.prefixed(c.name, c.watchLog)
	defer lines.flush()
	cmd.Stdout, cmd.Stderr = lines, lines
	err = cmd.Start()
	_ = read.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.name, err)
	}
	c.set(cmd.Process.Pid)
	defer c.set(0)
	if c.ranBefore {
		c.out.say("%s is started again, pid %d", c.name, cmd.Process.Pid)
	}
	c.ranBefore = true

	ended := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() { c.stop(ctx, cmd.Process, ended) })
	err = cmd.Wait()
	close(ended)
	stopping.Wait()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("cannot wait for %s: %w", c.name, err)
	}
	return cmd.ProcessState, nil
}

func (c *child) set(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
}

// stop asks the process to stop when ctx ends, and kills it if it does not.
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

// leadingLine is what a replica logs when a term begins, as text or JSON.
var leadingLine = regexp.MustCompile(`"Leading".*\bepoch"?[=:]"?(\d+)`)

// ofElections is in the lines of who elects, in mode coordinated (server.ElectionsLease), which is not the shard's leader.
var ofElections = []byte("/regent-elections")

// watchLog sees each line of the log.
func (c *child) watchLog(line []byte) {
	if bytes.Contains(line, ofElections) {
		return
	}
	if match := leadingLine.FindSubmatch(line); match != nil {
		if epoch, err := strconv.Atoi(string(match[1])); err == nil {
			c.leads(c, epoch)
		}
	}
}

// UntilParentEnds returns at once if this process has no parent's pipe; else it calls ended when the pipe ends.
func UntilParentEnds(ended func()) error {
	text, ok := os.LookupEnv(ParentPipe)
	if !ok {
		return nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= int(os.Stderr.Fd()) {
		return fmt.Errorf("%s=%q is no file descriptor of a pipe: only `regent dev` sets it", ParentPipe, text)
	}
	pipe := os.NewFile(uintptr(fd), "parent")
	// For the life of the process, as its parent's pipe.
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		ended()
	}()
	return nil
}
