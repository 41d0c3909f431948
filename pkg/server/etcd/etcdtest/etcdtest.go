// Package etcdtest starts etcds for tests.
package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// Start starts an embedded etcd in a process of its own, so that what it holds and does is not taken for this one's, and returns how to reach it. It
// ends with the test. It is built without the race detector, under which it would take most of the CPU of some tests.
func Start(t testing.TB) storagebackend.TransportConfig {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(binary, t.TempDir())
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("etcd ended with %v", err)
		}
	})
	way := storagebackend.TransportConfig{ServerList: make([]string, 1)}
	if _, err := fmt.Fscanln(out, &way.ServerList[0], &way.TrustedCAFile, &way.CertFile, &way.KeyFile); err != nil {
		t.Fatalf("etcd has not said where it is: %v", err)
	}
	return way
}

// build builds bin/embedded-etcd, once in each process, and returns its path. Go sees whether it is up to date.
var build = sync.OnceValues(func() (binary string, err error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..", "..", "..")
	binary = filepath.Join(root, "bin", "embedded-etcd")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	// Tests of several packages may come at once. Nobody starts what another one is writing.
	lock, err := os.OpenFile(binary+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	command := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./test/tools/embedded")
	command.Dir = root
	if said, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the embedded etcd: %w\n%s", err, said)
	}
	return binary, nil
})
