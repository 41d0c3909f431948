package shards

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/server/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// installation has the authorities of members.
type installation struct {
	*testing.T
	bundle  *pki.Bundle
	members map[pki.Member]*pki.Authority
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	bundle, err := pki.Ensure(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &installation{t, bundle, map[pki.Member]*pki.Authority{}}
}

func shardNamed(name string) pki.Member { return pki.Member{Kind: pki.KindShard, Name: name} }

// authority returns the authority of a member. It is always the same one.
func (i *installation) authority(m pki.Member) *pki.Authority {
	i.Helper()
	if i.members[m] == nil {
		i.members[m] = i.newAuthority(m)
	}
	return i.members[m]
}

// keys are those with which a shard calls.
func (i *installation) keys(shard string) func() ([]byte, *pki.Authority) {
	return func() ([]byte, *pki.Authority) { return i.bundle.CAPEM, i.authority(shardNamed(shard)) }
}

func (i *installation) newAuthority(m pki.Member) *pki.Authority {
	i.Helper()
	certPEM, keyPEM, err := i.bundle.NewAuthority(m)
	if err != nil {
		i.Fatal(err)
	}
	authority, err := pki.LoadAuthority(certPEM, keyPEM)
	if err != nil {
		i.Fatal(err)
	}
	return authority
}

// replica is a server on loopback.
type replica struct {
	url string
	// connections and requests are how many were accepted.
	connections, requests atomic.Int32
	close                 func()
}

// serve starts a replica with a certificate of authority.
func (i *installation) serve(authority *pki.Authority, handler http.HandlerFunc) *replica {
	i.Helper()
	certPEM, keyPEM, err := authority.Serve(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		i.Fatal(err)
	}
	return i.serveWith(certPEM, keyPEM, handler)
}

func (i *installation) serveWith(certPEM, keyPEM []byte, handler http.HandlerFunc) *replica {
	i.Helper()
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		i.Fatal(err)
	}
	r := &replica{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		handler(w, req)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.connections.Add(1)
		}
	}
	server.StartTLS()
	r.url, r.close = server.URL, server.Close
	i.Cleanup(server.Close)
	return r
}

// paused is a replica whose process is stopped: the kernel accepts connections for it.
func (i *installation) paused() *replica {
	i.Helper()
	r := &replica{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		i.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.connections.Add(1)
			defer func() { _ = conn.Close() }()
		}
	}()
	r.url, r.close = "https://"+listener.Addr().String(), func() { _ = listener.Close(); <-ended }
	i.Cleanup(r.close)
	return r
}

// down is a replica that does not run.
func (i *installation) down() *replica {
	i.Helper()
	return &replica{url: "https://127.0.0.1:1"}
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
