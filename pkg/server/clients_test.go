package server

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// startLoopbackServer serves with the loopback's certificate of a replica that does not run.
func startLoopbackServer(t *testing.T) (*rest.Config, *httptest.Server) {
	t.Helper()
	s, err := New(t.Context(), config(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(s.generic.SecureServing.SNICerts[0].CurrentCertKeyContent())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = server.Listener.Close()
	server.Listener, server.TLS = s.generic.SecureServing.Listener, &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return s.generic.LoopbackClientConfig, server
}

// hostOf is the loopback configuration of a process that is a test's server.
func hostOf(server *httptest.Server) *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// A term's clients make new connections to their own process, whose certificate was made at its start, by the clock of then.
func TestATermsConnectionsDoNotDependOnTheClock(t *testing.T) {
	host, _ := startLoopbackServer(t)
	const year = 365 * 24 * time.Hour
	for name, step := range map[string]time.Duration{
		"right": 0, "back by half an hour": -30 * time.Minute, "back by two hours": -2 * time.Hour, "back by decades": -40 * year, "ahead by four years": 4 * year,
	} {
		l, err := newLoopback(host, "token")
		if err != nil {
			t.Fatal(err)
		}
		l.door.next.TLSClientConfig.Time = func() time.Time { return time.Now().Add(step) }
		if err := l.touch(t.Context(), "token"); err != nil {
			t.Errorf("the clock is %s: %v", name, err)
		}
		l.close()
	}
}

// The clients' token is worth all of the shard: nobody else must see it.
func TestTheLoopbackTrustsItsOwnProcessOnly(t *testing.T) {
	mine, _ := startLoopbackServer(t)
	_, other := startLoopbackServer(t)
	host := rest.CopyConfig(mine)
	host.Host = other.URL
	l, err := newLoopback(host, "token")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.touch(t.Context(), "token"); !errors.Is(err, errNotThisProcess) {
		t.Errorf("another process with a certificate of the same make: %v", err)
	}
}
