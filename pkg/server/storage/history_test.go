package storage_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// A store that goes back makes what was seen of terms worthless: revisions that come twice stand for two things.
func TestAnEtcdThatGoesBackIsNoticed(t *testing.T) {
	t.Parallel() // most of it is waiting: an etcd that closes cuts streams after some seconds
	for name, restore := range map[string]func(t *testing.T, backup, directory string){
		"restored": func(t *testing.T, backup, directory string) {
			if err := os.CopyFS(directory, os.DirFS(backup)); err != nil {
				t.Fatal(err)
			}
		},
		"replaced": func(*testing.T, string, string) {}, // by one without data
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory, backup := filepath.Join(t.TempDir(), "etcd"), t.TempDir()
			port := 0
			start := func() *etcd.Server {
				server, err := etcd.Start(t.Context(), etcd.Config{Directory: directory, ClientPort: port})
				if err != nil {
					t.Fatal(err)
				}
				return server
			}
			server := start()
			port = portOf(t, server.Transport().ServerList[0])
			w := newWorld(t, server.Transport(), false, nil)
			old := w.take("me")
			server.Close()
			data := filepath.Join(directory, "data") // its clients' key is not of the past
			if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			server = start()
			w.take("another")
			w.reset(true)
			if err := w.client.Fault(); err != nil {
				t.Fatalf("after a restart: %v", err)
			}
			server.Close()
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
			restore(t, backup, data)
			server = start()
			defer server.Close()
			for deadline := time.Now().Add(30 * time.Second); w.client.Fault() == nil; {
				if _, err := w.client.Etcd().Get(t.Context(), "/"); err != nil && time.Now().After(deadline) {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatal("not noticed")
				}
			}
			<-w.client.WentBack()
			if !errors.Is(w.client.Fault(), storage.ErrWentBack) {
				t.Error(w.client.Fault())
			}
			t.Log(w.client.Fault())
			// What is asked now is asked of etcd: the first term is there again, or nothing is.
			if err := w.client.CheckToken(w.as(old)); (err == nil) != (name == "restored") {
				t.Errorf("the term of the backup: %v", err)
			}
		})
	}
}

// A replica that stands by asks little: what its watches have told it counts.
func TestWhatAWatchHasToldIsPartOfTheHistory(t *testing.T) {
	way := etcdtest.Start(t)
	idle, busy := newWorld(t, way, false, nil), newWorld(t, way, false, nil)
	for _, layers := range []upstream.Interface{idle.leases, idle.objects} {
		waitUntilFilled(t, layers)
	}
	busy.reset(true)
	for range 10 { // what it still asks at its start is over then
		if err := busy.update(busy.admin); err != nil {
			t.Fatal(err)
		}
		resp, err := busy.client.Etcd().Get(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(30 * time.Second); idle.client.LastRevision() < resp.Header.Revision; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it has seen revision %d, etcd is at %d", idle.client.LastRevision(), resp.Header.Revision)
			}
		}
	}
}

func portOf(t *testing.T, endpoint string) int {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
