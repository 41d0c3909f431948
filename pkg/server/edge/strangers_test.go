package edge

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/server/apis"
)

// Nor by many requests. Probes, and those who show credentials of any kind, are let through.
func TestStrangersHaveABudgetOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := 0
		handler := withBoundedTraces(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }), apis.Codecs, newGuesses(nil))
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

// Made-up credentials have a budget for each address. Credentials that were accepted before pass, from the same
// address, too.
func TestWrongCredentialsHaveABudgetOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		wrong := newGuesses(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			token := req.Header.Get("Authorization")
			req.Header.Del("Authorization") // as upstream does it
			return nil, token == "Bearer good signed", nil
		}))
		known := wrong.learning(authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			asked++
			name := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer good ")
			// a certificate
			good := name != req.Header.Get("Authorization") || req.Header.Get("Authorization") == ""
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, good, nil
		}))
		handler := withBoundedTraces(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			for range 2 { // the second time is about somebody else
				_, _, _ = known.AuthenticateRequest(req)
			}
		}), apis.Codecs, wrong)
		ask := func(from, token string, change ...func(*http.Request)) int {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", http.NoBody)
			req.RemoteAddr = from + ":1"
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			for _, c := range change {
				c(req)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			return w.Code
		}
		flood := func(from string, change ...func(*http.Request)) int {
			asked = 0
			for n := range 3 * guessesAtOnce {
				ask(from, fmt.Sprint("bad ", n), change...)
			}
			return asked / 2
		}
		const here, there = "192.0.2.1", "192.0.2.2"
		front := func(client string) func(*http.Request) {
			return func(req *http.Request) {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("front")}}}
				req.Header.Set("X-Forwarded-For", client)
			}
		}
		if got := ask(here, "good old"); got != http.StatusOK {
			t.Fatal(got)
		}
		if got := flood(here); got != guessesAtOnce {
			t.Errorf("%d made-up tokens are looked at, want %d", got, guessesAtOnce)
		}
		if got := ask(here, "good old"); got != http.StatusOK {
			t.Errorf("who is known, behind the same address: %d", got)
		}
		if got := ask(here, "good new"); got != http.StatusTooManyRequests {
			t.Errorf("who is not: %d", got)
		}
		if got := ask(here, "good signed"); got != http.StatusOK || asked == 0 {
			t.Errorf("whose token is known to be good without asking anybody: %d", got)
		}
		if got := ask(there, "good new"); got != http.StatusOK {
			t.Errorf("from elsewhere: %d", got)
		}
		time.Sleep(time.Second)
		if got := flood(here); got != guessesPerSecond {
			t.Errorf("%d are looked at a second later, want %d", got, guessesPerSecond)
		}
		ask("192.0.2.9", "", front("192.0.2.9")) // what the front asks for itself
		if got := flood("192.0.2.9", front("198.51.100.1")); got != guessesAtOnce {
			t.Errorf("%d through a front are looked at, want %d", got, guessesAtOnce)
		}
		if got := ask("192.0.2.9", "good other", front("198.51.100.2")); got != http.StatusOK {
			t.Errorf("another client of the front: %d", got)
		}
	})
}
