package connections

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// get asks once and says whether the request went over a connection that was there before, and in which protocol.
func get(t *testing.T, client *http.Client, url string) (reused bool, protocol string) {
	t.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", answer.Status, err)
	}
	return reused, answer.Proto
}

// Nobody is on an old connection any more when the listener closes, and no request has failed for it.
func TestClientsConnectAnewBeforeTheListenerCloses(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			var farewell Farewell
			server := httptest.NewUnstartedServer(farewell.Serving(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			client := server.Client()
			defer client.CloseIdleConnections()
			get(t, client, server.URL)
			if reused, spoken := get(t, client, server.URL); !reused || spoken != protocol {
				t.Fatalf("before: the connection was kept: %t, %s; want it kept, %s", reused, spoken, protocol)
			}
			farewell.Wait(0)
			get(t, client, server.URL)
			if reused, _ := get(t, client, server.URL); reused {
				t.Error("the client is still on its old connection after an answer")
			}
		})
	}
}

func TestClientsAreSentAwayInTheSecondHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var farewell Farewell
		header := func(asked *http.Request) string {
			w := httptest.NewRecorder()
			farewell.Serving(http.NotFoundHandler()).ServeHTTP(w, asked)
			return w.Header().Get("Connection")
		}
		asked, upgraded := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRequest(http.MethodGet, "/", nil)
		upgraded.Header.Set("Upgrade", "websocket")
		began, waited := time.Now(), sync.WaitGroup{}
		waited.Go(func() { farewell.Wait(10 * time.Second) })
		<-time.After(4 * time.Second)
		if said := header(asked); said != "" {
			t.Errorf("in the first half: Connection: %q, want none", said)
		}
		<-time.After(2 * time.Second)
		if said := header(asked); said != "close" {
			t.Errorf("in the second half: Connection: %q, want close", said)
		}
		if said := header(upgraded); said != "" {
			t.Errorf("an upgrade: Connection: %q, want it left alone", said)
		}
		waited.Wait()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("waited %v, want 10s", took)
		}
	})
}
