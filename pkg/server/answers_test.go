package server

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/edge"
)

// Answers that need no rights are as long as their URLs. Clients whose window is smaller would hold all places for
// good.
func TestWhoHasNoRightsHoldsNoPlaceByTakingNoAnswer(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers)
	cfg.Limits = edge.Limits{RequestsInFlight: 1}
	r := startReplica(t, cfg)
	long := strings.Repeat("a", 64<<10)
	for name, c := range map[string]struct{ path, bearer string }{
		"a stranger":               {"/livez?verbose&exclude=" + long, ""},
		"a stranger, in a cluster": {"/clusters/root/readyz?verbose&exclude=" + long, ""},
		"a user":                   {"/clusters/root/" + long, "t-ann"},
	} {
		t.Run(name, func(t *testing.T) {
			narrow := http.Client{Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is ours
				ForceAttemptHTTP2: true,
				HTTP2:             &http.HTTP2Config{MaxReceiveBufferPerStream: 4 << 10},
			}}
			defer narrow.CloseIdleConnections()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 3 {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+c.path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				if c.bearer != "" {
					req.Header.Set("Authorization", "Bearer "+c.bearer)
				}
				resp, err := narrow.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if resp.ProtoMajor != 2 || resp.StatusCode == http.StatusTooManyRequests {
					t.Errorf("%s %s", resp.Proto, resp.Status)
				}
			}
			if got := r.ask(t, http.MethodGet, "/clusters/root/api/v1/namespaces", "t-ann"); got.status != http.StatusForbidden {
				t.Errorf("another request: %d, want 403: there is no place for it", got.status)
			}
			if got := r.ask(t, http.MethodGet, "/livez", ""); got.status != http.StatusOK {
				t.Errorf("a probe: %d, want 200", got.status)
			}
		})
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// What others have this server say may be of any length. Nobody makes it keep more than so much of it.
func TestAnAnswerThatIsKeptBackHasABound(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int
		whole bool
	}{
		"as long as may be": {longestHeld, true},
		"a byte more":       {longestHeld + 1, false},
		"twice as long":     {2 * longestHeld, false},
	} {
		t.Run(name, func(t *testing.T) {
			said := strings.Repeat("x", c.bytes)
			handler := withAnswersHeld(errorsOnly, uncounted, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(len(said)))
				w.WriteHeader(http.StatusBadGateway)
				for rest := said; rest != ""; rest = rest[min(len(rest), 4096):] {
					_, _ = io.WriteString(w, rest[:min(len(rest), 4096)])
				}
			}))
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if answer.Code != http.StatusBadGateway {
				t.Errorf("the status is %d", answer.Code)
			}
			if got := answer.Body.String(); c.whole && got != said || !c.whole && (len(got) > 100 || !strings.Contains(got, "is left out")) {
				t.Errorf("%d bytes: %.100s", len(got), got)
			}
			if length := answer.Header().Get("Content-Length"); !c.whole && length != "" {
				t.Errorf("it says that it has %s bytes", length)
			}
		})
	}
}
