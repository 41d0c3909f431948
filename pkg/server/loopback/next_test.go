package loopback

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheNextClientSaysWhyItsConnectionIsNotOpen(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }))
	defer server.Close()
	l, err := New(hostOf(server), "token")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.ping(t.Context(), "token"); err == nil || !strings.HasSuffix(err.Error(), "429 Too Many Requests") {
		t.Errorf("it says %v", err)
	}
}
