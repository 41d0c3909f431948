package storage_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/storage"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		m,
		// Upstream's: each read that waits for a watch cache leaves a timer behind for up to 3 s.
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	)
}

func newClient(t testing.TB, way storagebackend.TransportConfig) *storage.Client {
	t.Helper()
	client, err := storage.NewClient(storage.Config{
		Transport: way,
		Prefix:    "registry/",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestClientComesToLifeWhenEtcdDoes(t *testing.T) {
	directory := t.TempDir()
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	way := server.Transport()
	server.Close()
	endpoint := way.ServerList[0]
	client := newClient(t, way)
	if got := client.Prefix(); got != "/registry" {
		t.Errorf("prefix %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := client.Check(ctx); err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("without etcd: %v, want an error that names %s", err, endpoint)
	}
	if server, err = etcd.Start(t.Context(), etcd.Config{Directory: directory, ClientPort: portOf(t, endpoint)}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for client.Check(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("the client does not find etcd")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestAnUnusableConfigurationIsAnErrorAtOnce(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(broken, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, transport := range map[string]storagebackend.TransportConfig{
		"no endpoint":  {},
		"missing file": {ServerList: []string{"https://127.0.0.1:1"}, TrustedCAFile: filepath.Join(t.TempDir(), "missing")},
		"no PEM":       {ServerList: []string{"https://127.0.0.1:1"}, TrustedCAFile: broken},
		"half a pair":  {ServerList: []string{"https://127.0.0.1:1"}, CertFile: broken},
	} {
		if client, err := storage.NewClient(storage.Config{Transport: transport}); err == nil {
			_ = client.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCloseEndsCallsThatWaitForEtcd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := storage.NewClient(storage.Config{Transport: storagebackend.TransportConfig{ServerList: []string{endpoint}}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- client.Check(context.Background()) }()
	time.Sleep(100 * time.Millisecond)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a call without etcd succeeds")
	}
}
