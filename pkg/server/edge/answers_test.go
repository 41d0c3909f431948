package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
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
