// Package etcdtest starts etcds for tests.
package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/regent-project/regent/test/built"
)

// Start starts an embedded etcd in a process of its own, so that what it holds and does is not taken for this one's,
// and returns how to reach it, with the key without which it lets nobody in. It ends with the test. It is built without
// the race detector, under which it would take most of the CPU of some tests.
func Start(t testing.TB) storagebackend.TransportConfig {
	t.Helper()
	binary, err := built.Program("embedded")
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
