// Package tracingtest serves collectors of spans for tests, and writes configurations that send spans there.
package tracingtest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Serve serves a collector on loopback until the test ends, and returns its address.
func Serve(t *testing.T, c collector.TraceServiceServer) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the collector could not be served: %v", err)
		}
	})
	return listener.Addr().String()
}

// Config writes a configuration that sends spans to an address, so many of a million requests, and returns the file.
func Config(t *testing.T, address, perMillion string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tracing.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + address + "\nsamplingRatePerMillion: " + perMillion + "\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
