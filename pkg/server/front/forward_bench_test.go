package front

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
)

// BenchmarkForward is one request after the other through a front, to a shard that answers at once. Everything is in
// this process.
func BenchmarkForward(b *testing.B) {
	m := newMembers(b)
	shardURL := m.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"asked-for","namespace":"default"}}`)
	}).URL
	m.cfg.Limits = DefaultLimits()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	m.cfg.Listener, m.cfg.Addresses = listener, []net.IP{net.IPv4(127, 0, 0, 1)}
	f, err := New(m.cfg)
	if err != nil {
		b.Fatal(err)
	}
	s, err := newShard(f.cfg, "eu1", "", []string{shardURL})
	if err != nil {
		b.Fatal(err)
	}
	f.shards["eu1"] = s
	f.index.set(logicalcluster.Name("cluster"), entry{shard: "eu1", path: "root:a"})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); <-ended; s.replicas.close() }()

	pair, err := tls.X509KeyPair(m.bundle.AdminCertPEM, m.bundle.AdminKeyPEM)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.bundle.CAPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	b.ReportAllocs()
	for b.Loop() {
		resp, err := client.Get("https://" + listener.Addr().String() + clusters.RequestPath("cluster") + "/api/v1/namespaces/default/configmaps/asked-for")
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
	}
}
