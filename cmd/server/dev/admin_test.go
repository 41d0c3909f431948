package dev

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/regent-project/regent/pkg/server/pki"
)

// The parent's own requests go on when the authority is rolled, though it has read the credentials at its start.
func TestTheParentFollowsARollOfTheAuthority(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	bundle, err := pki.Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := newAdminTransport(directory, bundle)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	for _, step := range []pki.Step{pki.Begin, pki.Switch, pki.Finish} {
		if err := pki.Roll(directory, "", step); err != nil {
			t.Fatal(err)
		}
	}
	if bundle, err = pki.Read(directory); err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := bundle.ServingCert(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}
