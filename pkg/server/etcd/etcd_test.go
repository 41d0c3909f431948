package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

func TestWhatWasWrittenSurvivesARestart(t *testing.T) {
	directory := t.TempDir()
	first := start(t, directory)
	put(t, first, "k", "v")
	first.Close()

	second := start(t, directory)
	defer second.Close()
	if got := get(t, second, "k"); got != "v" {
		t.Errorf("after a restart k = %q, want v", got)
	}
}

func TestADirectoryInUseIsRefusedWithAdvice(t *testing.T) {
	directory := t.TempDir()
	s := start(t, directory)
	defer s.Close()

	_, err := Start(t.Context(), Config{Directory: directory})
	var inUse *InUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("second Start returned %v, want an InUseError", err)
	}
	way := s.Transport()
	for _, advice := range []string{
		"--etcd-servers=" + way.ServerList[0], "--etcd-cafile=" + way.TrustedCAFile, "--etcd-certfile=" + way.CertFile, "--etcd-keyfile=" + way.KeyFile,
	} {
		if inUse.Endpoint != way.ServerList[0] || !strings.Contains(err.Error(), advice) {
			t.Errorf("the error does not say %s: %v", advice, err)
		}
	}
}

func TestATakenPortIsAnErrorThatFreesTheDirectory(t *testing.T) {
	s := start(t, t.TempDir())
	defer s.Close()
	port := s.serving.listener.Addr().(*net.TCPAddr).Port

	directory := t.TempDir()
	if _, err := Start(t.Context(), Config{Directory: directory, ClientPort: port}); err == nil {
		t.Fatal("Start on a taken port succeeded")
	}
	start(t, directory).Close()
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the operator changed their mind")
	cancel(cause)
	directory := t.TempDir()
	if s, err := Start(ctx, Config{Directory: directory}); err == nil {
		s.Close() // it was ready at once: as good
	} else if !errors.Is(err, cause) {
		t.Errorf("Start returned %v, want the context's cause", err)
	}
	start(t, directory).Close()
}

func start(t *testing.T, directory string) *Server {
	t.Helper()
	s, err := Start(t.Context(), Config{Directory: directory})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// client holds the key.
func client(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	way := s.Transport()
	return clientWith(t, way.ServerList[0], holder(t, way))
}

func holder(t *testing.T, way storagebackend.TransportConfig) *tls.Config {
	t.Helper()
	config, err := transport.TLSInfo{TrustedCAFile: way.TrustedCAFile, CertFile: way.CertFile, KeyFile: way.KeyFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func clientWith(t *testing.T, endpoint string, config *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: config, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put(t *testing.T, s *Server, key, value string) {
	t.Helper()
	c := client(t, s)
	defer func() { _ = c.Close() }()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s *Server, key string) string {
	t.Helper()
	c := client(t, s)
	defer func() { _ = c.Close() }()
	resp, err := c.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("get %s: %v, %v", key, resp, err)
	}
	return string(resp.Kvs[0].Value)
}

// By its id replicas notice that an etcd was replaced by another, also by one that is ahead.
func TestEachEtcdHasAnIdOfItsOwnAndKeepsIt(t *testing.T) {
	directory := t.TempDir()
	id := func(directory string) uint64 {
		t.Helper()
		s := start(t, directory)
		defer s.Close()
		return uint64(s.etcd.Server.Cluster().ID())
	}
	first := id(directory)
	if other := id(t.TempDir()); other == first {
		t.Errorf("two etcds have the id %x", first)
	}
	if again := id(directory); again != first {
		t.Errorf("the id was %x, is %x", first, again)
	}
}
