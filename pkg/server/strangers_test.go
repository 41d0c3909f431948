package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/edge"
)

// Whoever shows no credentials must not turn the audit log over by long URLs.
func TestLongURLsAreInNoLog(t *testing.T) {
	r, events := startAudited(t)
	defer func() { _ = r.stop(t) }() // before its directory is removed
	for range 3 {
		if got := r.ask(t, http.MethodGet, "/clusters/root/api/"+strings.Repeat("x", edge.MaxURLOfStrangers), ""); got.status != http.StatusRequestURITooLong {
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
	if got := r.ask(t, http.MethodGet, "/clusters/system:admin/api/v1/configmaps?labelSelector="+strings.Repeat("!a,", edge.MaxURL/3), "t-root"); got.status != http.StatusRequestURITooLong {
		t.Errorf("a URL of a user that is too long: %d %.200s", got.status, got.body)
	}
}
