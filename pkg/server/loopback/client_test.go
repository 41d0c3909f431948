package loopback

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
)

// startServer serves with the loopback's certificate of a server that does not run.
func startServer(t *testing.T) (*rest.Config, *httptest.Server) {
	t.Helper()
	var serving *genericapiserver.SecureServingInfo
	var host *rest.Config
	options := genericoptions.NewSecureServingOptions()
	options.BindAddress, options.BindPort, options.ServerCert.CertDirectory = net.IPv4(127, 0, 0, 1), 0, ""
	if err := options.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil); err != nil {
		t.Fatal(err)
	}
	var err error
	if options.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := options.WithLoopback().ApplyTo(&serving, &host); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(serving.SNICerts[0].CurrentCertKeyContent())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = server.Listener.Close()
	server.Listener, server.TLS = serving.Listener, &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return host, server
}

// hostOf is the loopback configuration of a process that is a test's server.
func hostOf(server *httptest.Server) *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// A term's clients make new connections to their own process, whose certificate was made at its start, by the clock of then.
func TestATermsConnectionsDoNotDependOnTheClock(t *testing.T) {
	host, _ := startServer(t)
	const year = 365 * 24 * time.Hour
	for name, step := range map[string]time.Duration{
		"right": 0, "back by half an hour": -30 * time.Minute, "back by two hours": -2 * time.Hour, "back by decades": -40 * year, "ahead by four years": 4 * year,
	} {
		l, err := New(host, "token")
		if err != nil {
			t.Fatal(err)
		}
		l.door.next.TLSClientConfig.Time = func() time.Time { return time.Now().Add(step) }
		if err := l.ping(t.Context(), "token"); err != nil {
			t.Errorf("the clock is %s: %v", name, err)
		}
		l.Close()
	}
}

// The clients' token is worth all of the shard: nobody else must see it.
func TestTheLoopbackTrustsItsOwnProcessOnly(t *testing.T) {
	mine, _ := startServer(t)
	_, other := startServer(t)
	host := rest.CopyConfig(mine)
	host.Host = other.URL
	l, err := New(host, "token")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.ping(t.Context(), "token"); !errors.Is(err, errNotThisProcess) {
		t.Errorf("another process with a certificate of the same make: %v", err)
	}
}
