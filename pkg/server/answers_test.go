package server

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
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
