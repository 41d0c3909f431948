package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/regent-project/regent/pkg/server/etcd"
)

// etcdDirectory, if set in the environment, makes this binary an etcd with its data there, until its input ends.
const etcdDirectory = "REGENT_TEST_ETCD_DIRECTORY"

func beEtcd(directory string) error {
	server, err := etcd.Start(context.Background(), etcd.Config{Directory: directory})
	if err != nil {
		return err
	}
	defer server.Close()
	way := server.Transport()
	fmt.Println(way.ServerList[0], way.TrustedCAFile, way.CertFile, way.KeyFile)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// etcdClient returns a client that lives as long as the test.
func etcdClient(t testing.TB, way storagebackend.TransportConfig) *clientv3.Client {
	t.Helper()
	config, err := transport.TLSInfo{TrustedCAFile: way.TrustedCAFile, CertFile: way.CertFile, KeyFile: way.KeyFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: way.ServerList, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// startEtcd starts an etcd in a process of its own, so that what it remembers is not taken for this one's.
func startEtcd(t testing.TB) storagebackend.TransportConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), etcdDirectory+"="+t.TempDir())
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
