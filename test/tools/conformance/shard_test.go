package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience is how long the shard may take to start, to serve and to end, on a slow machine.
const patience = 2 * time.Minute

// startShard runs `regent dev` until the test ends: two replicas, an etcd, and a balancer in front. It returns the
// administrator's kubeconfig. Its output goes to a file in logs.
func startShard(t *testing.T, logs string) string {
	t.Helper()
	root := t.TempDir()
	said, err := os.Create(filepath.Join(logs, "dev.log"))
	if err != nil {
		t.Fatal(err)
	}
	dev := exec.CommandContext(context.Background(), *regent, "dev", "--root-directory="+root, fmt.Sprintf("--secure-port=%d", portsInARow(t, 3)))
	dev.Stdout, dev.Stderr = said, said
	dev.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if _, err := dev.StdinPipe(); err != nil { // dev reads it: its end would say that nobody is there any more
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatalf("cannot start %s: run make conformance, which builds it: %v", *regent, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- dev.Wait() }()
	t.Cleanup(func() {
		if err := errors.Join(interrupt(dev.Process, ended), said.Close()); err != nil {
			t.Errorf("regent dev: %v", err)
		}
	})
	until(t, "regent dev says that it is ready, in "+said.Name(), func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("regent dev has ended: %v; %s says why", err, said.Name())
		default:
		}
		if out, err := os.ReadFile(said.Name()); err != nil || !bytes.Contains(out, []byte("\n  kill -9 ")) {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
	return filepath.Join(root, "admin.kubeconfig")
}

// interrupt presses Ctrl-C, and waits until the process has ended. A process that does not is killed.
func interrupt(p *os.Process, ended <-chan error) error {
	if err := p.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("it has not ended %v after SIGINT", patience), p.Kill())
	}
}

// portsInARow returns the first of n free ports.
func portsInARow(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port, free := first.Addr().(*net.TCPAddr).Port, 0
		_ = first.Close()
		for ; free < n; free++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+free))
			if err != nil {
				break
			}
			_ = l.Close()
		}
		if free == n {
			return port
		}
	}
	t.Fatal("there are no free ports in a row")
	return 0
}

// until asks until there is no error any more.
func until(t *testing.T, what string, so func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
		err := so()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("in vain for %v: %s: %v", patience, what, err)
		}
	}
}
