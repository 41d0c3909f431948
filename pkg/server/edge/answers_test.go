package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestAnAnswerThatNobodyTakesEndsItsHandler(t *testing.T) {
	t.Parallel() // most of it is waiting
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			server := httptest.NewUnstartedServer(withAnswerDeadline(100*time.Millisecond, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				defer close(ended)
				endless(w, func() {})
			})))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			resp, err := server.Client().Get(server.URL) //nolint:noctx // it is ended by the server
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				server.CloseClientConnections()
				t.Fatal("the handler still writes")
			}
		})
	}
}

// read returns what a server answers.
func read(server *httptest.Server) (string, error) {
	resp, err := server.Client().Get(server.URL) //nolint:noctx // it is answered at once
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Deadlines are each request's own: the next one on the same connection has all the time that a request has.
func TestADeadlineOfAnAnswerIsNotTheNextOnes(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var answers []*delivery
			server := httptest.NewUnstartedServer(withAnswerDeadline(timeout, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				answers = append(answers, deliveryFrom(req.Context()))
				_, _ = io.WriteString(w, "all is well")
			})))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			for range 3 {
				asked := time.Now()
				body, err := read(server)
				// else it may have missed its own deadline
				if own := time.Since(asked) < 2*timeout; own && (err != nil || body != "all is well") {
					t.Errorf("%q, %v", body, err)
				}
				time.Sleep(3 * timeout)
			}
			for _, a := range answers {
				a.end() // too late: it must neither panic nor end another one's answer
			}
		})
	}
}
