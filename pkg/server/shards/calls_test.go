package shards

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/server/pki"
)

// A connection that is always in use must not keep what was shown when it began: the shard looks at it with each
// request.
func TestNewRequestsShowTheLatestKeysAndThoseUnderWayGoOn(t *testing.T) {
	i := newInstallation(t)
	front := pki.Member{Kind: pki.KindFront, Name: "f"}
	var authority atomic.Pointer[pki.Authority]
	authority.Store(i.newAuthority(front))
	certificates := make(chan string, 3)
	goOn := make(chan struct{})
	there := i.serve(i.authority(shardNamed("eu1")), func(w http.ResponseWriter, req *http.Request) {
		certificates <- pki.Fingerprint(req.TLS.PeerCertificates[1])
		if req.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-goOn
		}
		_, _ = io.WriteString(w, "answered")
	})
	calls, err := NewCaller(func() ([]byte, *pki.Authority) { return i.bundle.CAPEM, authority.Load() }).Calls("eu1", "", func(config *tls.Config) (*http.Transport, error) {
		dialer, err := NewDialer("eu1", []string{there.url}, config)
		if err != nil {
			return nil, err
		}
		return dialer.Transport(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.CloseIdleConnections()
	read := func(resp *http.Response, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "answered" {
			t.Errorf("%q, %v", body, err)
		}
	}
	watch, err := i.send(calls, http.MethodGet, "/watch")
	if err != nil {
		t.Fatal(err)
	}
	first := <-certificates
	read(i.send(calls, http.MethodGet, "/"))
	if again := <-certificates; again != first || there.connections.Load() != 1 {
		t.Errorf("the same keys are shown over %d connections", there.connections.Load())
	}
	authority.Store(i.newAuthority(front))
	read(i.send(calls, http.MethodGet, "/"))
	if later := <-certificates; later == first || there.connections.Load() != 2 {
		t.Errorf("other keys are shown: %t, over %d connections", later != first, there.connections.Load())
	}
	close(goOn)
	read(watch, nil)
}

// What cannot be signed was not sent, so that a front may ask another replica.
func TestARequestForWhichThereAreNoKeysWasNotSent(t *testing.T) {
	i := newInstallation(t)
	ca := i.bundle.CAPEM
	calls, err := NewCaller(func() ([]byte, *pki.Authority) { return ca, i.authority(shardNamed("us1")) }).Calls("eu1", "", func(*tls.Config) (*http.Transport, error) {
		return &http.Transport{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ca = nil
	resp, err := i.send(calls, http.MethodGet, "/")
	if err == nil {
		_ = resp.Body.Close()
	}
	dial := (*net.OpError)(nil)
	if !errors.As(err, &dial) || dial.Op != "dial" || !strings.Contains(err.Error(), "shard eu1") {
		t.Errorf("%v", err)
	}
}

// A certificate is exchanged long before it expires.
func TestACallerShowsANewCertificateInTime(t *testing.T) {
	i := newInstallation(t)
	synctest.Test(t, func(t *testing.T) {
		caller := NewCaller(i.keys("us1"))
		now := func() *call {
			t.Helper()
			with, err := caller.now()
			if err != nil {
				t.Fatal(err)
			}
			return with
		}
		first := now()
		time.Sleep(callRenewal - time.Second)
		if now() != first {
			t.Error("it is exchanged too soon")
		}
		time.Sleep(2 * time.Second)
		if now() == first {
			t.Error("it is not exchanged")
		}
	})
}
