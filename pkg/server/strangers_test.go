package server

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/server/apis"
)

// Whoever shows no credentials must not turn the audit log over by long URLs.
func TestLongURLsAreInNoLog(t *testing.T) {
	r, events := startAudited(t)
	for range 3 {
		if got := r.ask(t, http.MethodGet, "/clusters/root/api/"+strings.Repeat("x", maxURLOfStrangers), ""); got.status != http.StatusRequestURITooLong {
			t.Errorf("a long URL: %d %.200s", got.status, got.body)
		}
	}
	for _, e := range events() {
		if len(e.RequestURI) > 1000 {
			t.Errorf("a request with a long URL is in the log: %.100s", e.RequestURI)
		}
	}
	if got := r.ask(t, http.MethodGet, "/clusters/system:admin/api", "t-root"); got.status != http.StatusOK {
		t.Errorf("a user: %d %s", got.status, got.body)
	}
	if got := r.ask(t, http.MethodGet, "/clusters/system:admin/api/v1/configmaps?labelSelector="+strings.Repeat("!a,", maxURL/3), "t-root"); got.status != http.StatusRequestURITooLong {
		t.Errorf("a URL of a user that is too long: %d %.200s", got.status, got.body)
	}
}

// Nor by many requests. Probes, and those who show credentials of any kind, are let through.
func TestStrangersHaveABudgetOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := 0
		handler := withBoundedTraces(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }), apis.Codecs)
		ask := func(n int, path string, change func(*http.Request)) int {
			passed = 0
			for range n {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
				change(req)
				w := httptest.NewRecorder()
				before := passed
				if handler.ServeHTTP(w, req); passed == before && (w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "") {
					t.Fatalf("%d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
				}
			}
			return passed
		}
		nothing := func(*http.Request) {}
		if got := ask(3*strangersAtOnce, "/clusters/root/api", nothing); got != strangersAtOnce {
			t.Errorf("%d pass at once, want %d", got, strangersAtOnce)
		}
		for name, c := range map[string]struct {
			path   string
			change func(*http.Request)
		}{
			"probes": {"/readyz", nothing},
			"tokens": {"/api", func(req *http.Request) { req.Header.Set("Authorization", "Bearer x") }},
			"tokens of browsers": {"/api", func(req *http.Request) {
				req.Header.Set("Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io.eA")
			}},
			"certificates": {"/api", func(req *http.Request) { req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}} }},
		} {
			if got := ask(50, c.path, c.change); got != 50 {
				t.Errorf("%s: %d of 50 pass", name, got)
			}
		}
		time.Sleep(time.Second)
		if got := ask(strangersAtOnce, "/clusters/root/api", nothing); got != strangersPerSecond {
			t.Errorf("%d pass a second later, want %d", got, strangersPerSecond)
		}
	})
}
