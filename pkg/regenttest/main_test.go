package regenttest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// shared is a server of two replicas for all tests that do it no harm.
var shared *Server

func TestMain(m *testing.M) {
	if way := os.Getenv(asVictim); way != "" {
		os.Exit(victim(way))
	}
	code := Main(m, func(s *Server) { shared = s }, Replicas(2))
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	// connections of its own, which end with the test
	own, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfigAndClient(config, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.CloseIdleConnections)
	return c
}
