package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheSpareSaysWhyItsConnectionIsNotOpen(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }))
	defer server.Close()
	l, err := newLoopback(hostOf(server), "token")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.touch(t.Context(), "token"); err == nil || !strings.HasSuffix(err.Error(), "429 Too Many Requests") {
		t.Errorf("it says %v", err)
	}
}
