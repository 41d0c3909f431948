package etcdtest

import (
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// Client returns a client that lives as long as the test.
func Client(t testing.TB, way storagebackend.TransportConfig) *clientv3.Client {
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
