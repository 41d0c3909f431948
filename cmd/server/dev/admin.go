package dev

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/regent-project/regent/pkg/server/pki"
)

// adminTransport makes requests with the administrator's credentials. It reads them again when a replica does not
// accept them, or is not trusted: regent pki may have exchanged them.
type adminTransport struct {
	directory string

	mu     sync.Mutex
	bundle *pki.Bundle
	next   *http.Transport
}

func newAdminTransport(directory string, bundle *pki.Bundle) (*adminTransport, error) {
	t := &adminTransport{directory: directory}
	return t, t.use(bundle)
}

func (t *adminTransport) use(bundle *pki.Bundle) error {
	config, err := adminTLS(bundle)
	if err != nil {
		return err
	}
	t.bundle, t.next = bundle, &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	return nil
}

// RoundTrip implements http.RoundTripper. What it asks with has no body.
func (t *adminTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.mu.Lock()
	next := t.next
	t.mu.Unlock()
	resp, err := next.RoundTrip(req)
	if err == nil && resp.StatusCode != http.StatusUnauthorized || req.Context().Err() != nil || !t.reread() {
		return resp, err
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	t.mu.Lock()
	next = t.next
	t.mu.Unlock()
	return next.RoundTrip(req)
}

// reread reports whether other credentials are in the files, and uses them from now on.
func (t *adminTransport) reread() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	bundle, err := pki.Read(t.directory)
	if err != nil || bytes.Equal(bundle.CAPEM, t.bundle.CAPEM) && bytes.Equal(bundle.AdminCertPEM, t.bundle.AdminCertPEM) {
		return false
	}
	old := t.next
	if err := t.use(bundle); err != nil {
		return false
	}
	old.CloseIdleConnections()
	return true
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (t *adminTransport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next.CloseIdleConnections()
}
