package storage_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/storage"
)

func startIn(t *testing.T, directory string, port int) *etcd.Server {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: directory, ClientPort: port})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// askUntilItWentBack asks etcd until the client has noticed.
func askUntilItWentBack(t *testing.T, client *storage.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for client.Fault() == nil {
		if _, err := client.Etcd().Get(ctx, "/"); err != nil && ctx.Err() != nil {
			t.Fatalf("not noticed: %v", err)
		}
	}
	return client.Fault()
}

// I2, in the history that follows a restore: a later term's Lease may come to have the very revision at which an
// earlier one was seen, in a history that did not happen.
func TestATermOfALostHistoryWritesNothing(t *testing.T) {
	t.Parallel() // most of it is waiting: an etcd that closes cuts streams after some seconds
	directory, backup := filepath.Join(t.TempDir(), "etcd"), t.TempDir()
	server := startIn(t, directory, 0)
	port := portOf(t, server.Transport().ServerList[0])
	w := newWorld(t, server.Transport(), true, nil)
	w.take("before")
	server.Close()
	if err := os.CopyFS(backup, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	server = startIn(t, directory, port)
	lost := w.take("lost")
	seen := w.leaseRevision()
	if err := w.create(w.as(lost)); err != nil { // the revision of its Lease is remembered
		t.Fatal(err)
	}
	server.Close()
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(directory, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	// CopyFS lets others read what it makes. A key that others can read is refused.
	if err := os.Chmod(filepath.Join(directory, "pki", pki.MutualKeyFile), 0o600); err != nil {
		t.Fatal(err)
	}
	server = startIn(t, directory, port)
	defer server.Close()
	t.Log(askUntilItWentBack(t, w.client))

	another := newWorld(t, server.Transport(), true, nil)
	for another.leaseRevision() < seen-1 {
		another.renew()
	}
	another.take("after")
	if revision := another.leaseRevision(); revision != seen {
		t.Fatalf("the Lease is at revision %d, want %d again", revision, seen)
	}
	if err := w.create(w.as(lost)); !fence.IsFenced(err) || w.stored() != "" {
		t.Errorf("a write of the lost term: %v, stored %q", err, w.stored())
	}
}

// leaseRevision is that of the lease in etcd.
func (w *world) leaseRevision() int64 {
	w.t.Helper()
	resp, err := w.client.Etcd().Get(w.t.Context(), "/registry/core/leases/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 {
		w.t.Fatalf("%d leases, %v", len(resp.Kvs), err)
	}
	return resp.Kvs[0].ModRevision
}
