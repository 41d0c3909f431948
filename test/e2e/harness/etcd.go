package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is a real etcd of one member, with fixed ports and data that outlive a kill.
type Etcd struct {
	*Process
	URL       string
	directory string
	args      []string
	n         int
}

// StartEtcd starts an etcd and returns when it serves.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	ports := FreePorts(t, 2)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	directory := filepath.Join(t.TempDir(), "etcd")
	e := &Etcd{URL: client, directory: directory, args: []string{
		"--name=e2e", "--data-dir=" + directory, "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=e2e=" + peer,
	}}
	e.Start(t)
	return e
}

// Start starts it, again if it was killed, on its data, and returns when it serves.
func (e *Etcd) Start(t testing.TB) {
	t.Helper()
	e.n++
	e.Process = Start(t, fmt.Sprintf("etcd-%d", e.n), Binary("etcd"), e.args...)
	client := e.Client(t)
	Eventually(t, "etcd serves", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Get(ctx, "/")
		return err == nil
	})
}

// Copy copies its data, while it does not run, and returns where to.
func (e *Etcd) Copy(t testing.TB) string {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(e.directory)); err != nil {
		t.Fatal(err)
	}
	return backup
}

// Restore replaces its data, while it does not run, by what Copy returned.
func (e *Etcd) Restore(t testing.TB, backup string) {
	t.Helper()
	if err := os.RemoveAll(e.directory); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.directory, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
}

// Client returns a client that lives as long as the test.
func (e *Etcd) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.URL}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
