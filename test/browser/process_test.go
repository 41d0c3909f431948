package browser

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// patience is how long anything may take on a slow machine.
const patience = time.Minute

// process is a command of regent, with what it has said.
type process struct {
	cmd   *exec.Cmd
	ended chan error

	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func begin(env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(context.Background(), *regent, args...), ended: make(chan error, 1)}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), env...), p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: run make build: %w", *regent, err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, nil
}

// until waits until the process has said something, and returns the match.
func (p *process) until(says *regexp.Regexp) ([]string, error) {
	for end := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		if found := says.FindStringSubmatch(p.output()); found != nil {
			return found, nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return nil, fmt.Errorf("%v has ended: %w\n%s", p.cmd.Args, err, p.output())
		default:
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%v does not say %q:\n%s", p.cmd.Args, says, p.output())
		}
	}
}

// stop presses Ctrl-C.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("%v: %w", p.cmd.Args, err)
		}
		return nil
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%v has not ended %v after SIGINT", p.cmd.Args, patience)
	}
}
