package fetch_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/server/fetch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client, and the URL of a server that answers so.
func serve(t *testing.T, code int, body string) (*http.Client, string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.Client(), server.URL
}

const limit = 16

func TestAnAnswerIsOneValueOfJSONThatIsNotTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		says string // of the error
	}{
		"good":                          {200, `{"a":1}`, ""},
		"as long as may be":             {200, `{"a":1}` + strings.Repeat(" ", limit-len(`{"a":1}`)), ""},
		"too long":                      {200, `{"a":1}` + strings.Repeat(" ", limit), "it answers with more than 16 bytes"},
		"no JSON":                       {200, "<html>", "not to be understood"},
		"two values":                    {200, `{"a":1}{}`, "not to be understood"},
		"another type":                  {200, `[]`, "not to be understood"},
		"nothing":                       {200, ``, "not to be understood"},
		"no 200, though there is JSON":  {201, `{"a":1}`, "it answers 201 Created: "},
		"a refusal that says nothing":   {503, "", "it answers 503 Service Unavailable"},
		"a refusal longer than answers": {500, strings.Repeat("no ", limit), "it answers 500 Internal Server Error: no no"},
	} {
		t.Run(name, func(t *testing.T) {
			client, url := serve(t, c.code, c.body)
			var into struct{ A int }
			answer, err := fetch.Get(t.Context(), client.Do, url, limit)
			if err == nil {
				err = answer.Decode(&into)
			}
			if c.says == "" {
				if err != nil || into.A != 1 {
					t.Errorf("%d, %v", into.A, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if refusal := new(fetch.Refusal); errors.As(err, &refusal) != (c.code != 200) || c.code != 200 && refusal.Code != c.code {
				t.Errorf("%v is no refusal with %d", err, c.code)
			}
		})
	}
}

func TestARefusalSaysInOneShortLineWhy(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a Status":          {`{"kind":"Status","message":"you may not"}`, "you may not"},
		"text":              {"no\nway\x1b[31m\r\n", "no way [31m"},
		"the paths":         {`{"paths":["/api"]}`, "no such path"},
		"JSON that is none": {`{"message":7}`, `{"message":7}`},
		"a long text":       {strings.Repeat("é", 1000), strings.Repeat("é", 150) + "..."},
		"an endless one":    {strings.Repeat("x", 1<<20), strings.Repeat("x", 300) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			client, url := serve(t, http.StatusForbidden, c.body)
			err := fetch.Check(t.Context(), client.Do, url)
			if refusal := new(fetch.Refusal); !errors.As(err, &refusal) || refusal.Code != http.StatusForbidden || refusal.Message != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
			if len(c.body) > 1<<16 {
				return
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := fetch.Do(client.Do, req, 1<<16)
			if err != nil || string(answer.Body) != c.body || answer.Refusal().Message != c.want {
				t.Errorf("whatever the status: %+v, %v", answer, err)
			}
		})
	}
}

func TestACheckReadsNoAnswer(t *testing.T) {
	client, url := serve(t, http.StatusOK, strings.Repeat("x", 1<<20))
	if err := fetch.Check(t.Context(), client.Do, url); err != nil {
		t.Error(err)
	}
}

// Whoever asks decides by the error whether something was sent.
func TestTheErrorOfARequestIsReturnedAsItIs(t *testing.T) {
	fault := &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
	send := func(*http.Request) (*http.Response, error) { return nil, fault }
	if _, err := fetch.Get(t.Context(), send, "https://x", limit); err != error(fault) {
		t.Error(err)
	}
	if err := fetch.Check(t.Context(), send, "https://x"); err != error(fault) {
		t.Error(err)
	}
}

func TestAnAnswerThatBreaksOffIsAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "{}")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	if answer, err := fetch.Get(t.Context(), server.Client().Do, server.URL, limit); err == nil || !strings.Contains(err.Error(), "breaks off") {
		t.Errorf("%+v, %v", answer, err)
	}
}
