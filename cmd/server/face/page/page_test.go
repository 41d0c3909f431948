package page

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/ui"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// back is a server behind the page.
type back struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

// behind starts a server. It answers with a status and a body; status 0: not before the one who asks has gone.
func behind(t *testing.T, status int, body string) *back {
	t.Helper()
	b := &back{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		content, _ := io.ReadAll(req.Body)
		b.mu.Lock()
		b.asked = append(b.asked, strings.TrimSpace(req.Method+" "+req.URL.RequestURI()+" "+string(content)))
		b.mu.Unlock()
		if status == 0 {
			<-req.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(b.Close)
	return b
}

// dead is a server that does not run.
func dead(t *testing.T) *back {
	b := behind(t, 200, "{}")
	b.Close()
	return b
}

func (b *back) was() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.asked
	b.asked = nil
	return out
}

// browser is a page that is served, and a browser that knows its secret.
type browser struct {
	*testing.T
	page   *Page
	url    *url.URL
	secret string
	client *http.Client
	end    context.CancelFunc
	ended  chan error
}

func show(t *testing.T, each time.Duration, servers ...*back) *browser {
	t.Helper()
	var places []ask.Place
	for _, b := range servers {
		places = append(places, ask.Place{Config: &rest.Config{Host: b.URL}})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	s := &browser{T: t, page: New(places), end: end, ended: make(chan error, 1)}
	s.page.places.each = each
	s.client = &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ready := make(chan string, 1)
	go func() { s.ended <- s.page.Serve(ctx, listener, func(url string) { ready <- url }) }()
	if s.url, err = url.Parse(<-ready); err != nil {
		t.Fatal(err)
	}
	s.secret = s.url.Query().Get(parameter)
	t.Cleanup(s.stop)
	return s
}

func (s *browser) stop() {
	s.client.CloseIdleConnections()
	s.end()
	select {
	case err := <-s.ended:
		if err != nil {
			s.Errorf("Serve returned %v", err)
		}
		s.ended <- nil
	case <-time.After(time.Minute):
		s.Fatal("Serve does not return")
	}
}

// send sends a request with the cookie. Each further pair is a header; one without a value is left out, Host is the
// host.
func (s *browser) send(method, uri, body string, headers ...string) (int, string, http.Header) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, "http://"+s.url.Host+"/", strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	path, query, _ := strings.Cut(uri, "?")
	req.URL.Opaque, req.URL.RawQuery = path, query // as it is, encoded or not
	req.Header.Set("Cookie", s.page.cookie+"="+s.secret)
	for n := 0; n < len(headers); n += 2 {
		switch {
		case headers[n] == "Host":
			req.Host = headers[n+1]
		case headers[n+1] == "":
			req.Header.Del(headers[n])
		default:
			req.Header.Set(headers[n], headers[n+1])
		}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(content), resp.Header
}

func TestOnlyWhoKnowsTheSecretIsAnswered(t *testing.T) {
	b := behind(t, 200, "{}")
	s := show(t, time.Minute, b)
	code, _, header := s.send("GET", ui.Path+"?secret="+s.secret, "", "Cookie", "")
	set, err := http.ParseSetCookie(header.Get("Set-Cookie"))
	if err != nil || code != http.StatusSeeOther || header.Get("Location") != ui.Path {
		t.Fatalf("%d, %v, %v", code, header, err)
	}
	if set.Value != s.secret || !set.HttpOnly || set.SameSite != http.SameSiteStrictMode || set.Name != cookie+s.url.Port() || set.Domain != "" {
		t.Errorf("the cookie is %v", set)
	}
	for name, headers := range map[string][]string{
		"no cookie": {"Cookie", ""}, "a wrong secret": {"Cookie", s.page.cookie + "=" + strings.Repeat("A", len(s.secret))}, "no secret": {"Cookie", s.page.cookie + "="},
		"another page's cookie": {"Cookie", cookie + "1=" + s.secret},
	} {
		for _, uri := range []string{ui.Path, ui.Path + "main.js", ui.Path + "docs/OPERATIONS", ui.Path + "?secret=", ui.Path + "?secret=x", "/regent/v1/installation", "/regent/v1/installation?secret=" + s.secret} {
			if code, body, _ := s.send("GET", uri, "", headers...); code != http.StatusUnauthorized || strings.Contains(body, s.secret) {
				t.Errorf("%s, %s: %d %s", name, uri, code, body)
			}
		}
	}
	if got := b.was(); got != nil {
		t.Errorf("the server was asked %q", got)
	}
	if code, body, header := s.send("GET", ui.Path, ""); code != 200 || !strings.Contains(body, "main.js") || header.Get("Content-Security-Policy") == "" {
		t.Errorf("with the cookie: %d, %v", code, header)
	}
	if code, body, _ := s.send("GET", ui.Path+"docs/OPERATIONS", ""); code != 200 || !strings.Contains(body, `id="problems"`) {
		t.Errorf("the docs, with the cookie: %d %.200s", code, body)
	}
	if code, body, header := s.send("GET", "/regent/v1/installation", ""); code != 200 || body != "{}" || header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("with the cookie: %d %s, %v", code, body, header)
	}
}

func TestTwoPagesHaveTwoSecrets(t *testing.T) {
	b := behind(t, 200, "{}")
	one, other := show(t, time.Minute, b), show(t, time.Minute, b)
	if one.secret == other.secret || len(one.secret) < 26 || one.page.cookie == other.page.cookie {
		t.Errorf("%q and %q, cookies %s and %s", one.secret, other.secret, one.page.cookie, other.page.cookie)
	}
}

// A page elsewhere can have its own name lead here, and have the browser write here.
func TestOtherSitesAreRefused(t *testing.T) {
	b := behind(t, 200, `{"shards":[]}`)
	s := show(t, time.Minute, b)
	own := "http://" + s.url.Host
	for _, c := range []struct {
		method, uri string
		headers     []string
		want        int
	}{
		{"GET", "/regent/v1/installation", []string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		{"GET", "/regent/v1/installation", []string{"Host", "evil.example:" + s.url.Port()}, http.StatusMisdirectedRequest},
		{"GET", ui.Path + "?secret=" + s.secret, []string{"Host", "localhost:" + s.url.Port()}, http.StatusMisdirectedRequest},
		{"POST", "/election/step-down", []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{"POST", "/election/step-down", []string{"Origin", "null"}, http.StatusForbidden},
		{"POST", "/election/step-down", []string{"Origin", "http://127.0.0.1:1"}, http.StatusForbidden},
		{"POST", "/election/step-down", []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"POST", "/election/step-down", []string{"Sec-Fetch-Site", "same-site", "Origin", own}, http.StatusForbidden},
		{"PATCH", "/clusters/root/apis/core.kcp.io/v1alpha1/shards/root", []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{"PATCH", "/clusters/root/apis/core.kcp.io/v1alpha1/shards/root", []string{"Origin", own}, http.StatusOK},
		{"PATCH", "/clusters/root/apis/core.kcp.io/v1alpha1/shards/root", []string{"Sec-Fetch-Site", "same-origin", "Origin", own}, http.StatusOK},
	} {
		code, body, _ := s.send(c.method, c.uri, "{}", c.headers...)
		if code != c.want {
			t.Errorf("%s %s, %q: %d %s, want %d", c.method, c.uri, c.headers, code, body, c.want)
		}
		if asked := b.was(); (c.want == http.StatusOK) != (len(asked) == 1) {
			t.Errorf("%s %s, %q: the server was asked %q", c.method, c.uri, c.headers, asked)
		}
	}
}

func TestNothingPassesButWhatThePageAsks(t *testing.T) {
	b := behind(t, 200, "{}")
	s := show(t, time.Minute, b)
	for _, passes := range []string{
		"GET /regent/v1/installation", "GET /regent/v1/terms?shard=root", "GET /regent/v1/workspaces?limit=50&search=a%2Fb",
		"GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces?limit=200", "GET /clusters/root:a:b-1/apis/tenancy.kcp.io/v1alpha1/workspaces",
		"PATCH /clusters/root/apis/core.kcp.io/v1alpha1/shards/eu-1",
	} {
		method, uri, _ := strings.Cut(passes, " ")
		if code, body, _ := s.send(method, uri, ""); code != 200 {
			t.Errorf("%s: %d %s", passes, code, body)
		}
		if got := b.was(); len(got) != 1 || got[0] != passes {
			t.Errorf("%s: the server was asked %q", passes, got)
		}
	}
	for _, refused := range []string{
		"POST /regent/v1/installation", "DELETE /regent/v1/installation", "HEAD /regent/v1/installation", "GET /regent/v1/a/b", "GET /regent/v1/../../metrics", "GET /regent/v1/%2e%2e/metrics",
		"GET /regent/v1/a%2fb", "GET /regent/v1/", "GET /regent/v1", "GET /metrics", "GET /debug/pprof/heap", "GET /", "OPTIONS /regent/v1/installation",
		"GET /clusters/root/api/v1/secrets", "GET /clusters/root%2fapi%2fv1/apis/tenancy.kcp.io/v1alpha1/workspaces", "GET /clusters/../apis/tenancy.kcp.io/v1alpha1/workspaces",
		"GET /clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces", "GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/a", "GET /clusters/root/apis/tenancy!kcp.io/v1alpha1/workspaces",
		"POST /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces", "DELETE /clusters/root/apis/core.kcp.io/v1alpha1/shards/root", "PUT /clusters/root/apis/core.kcp.io/v1alpha1/shards/root",
		"PATCH /clusters/other/apis/core.kcp.io/v1alpha1/shards/root", "PATCH /clusters/root/apis/core.kcp.io/v1alpha1/shards/root/status", "PATCH /clusters/root/apis/core.kcp.io/v1alpha1/shards/a%2fb",
		"GET /election/step-down", "PUT /election/step-down", "POST /election/step-down/", "GET /clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces%0a",
	} {
		method, uri, _ := strings.Cut(refused, " ")
		if code, body, _ := s.send(method, uri, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d %s, want 404", refused, code, body)
		}
		if got := b.was(); got != nil {
			t.Errorf("%s: the server was asked %q", refused, got)
		}
	}
	if code, _, _ := s.send("PATCH", "/clusters/root/apis/core.kcp.io/v1alpha1/shards/root", strings.Repeat("x", maxBody+1)); code != http.StatusBadRequest || b.was() != nil {
		t.Errorf("a body that is too long: %d", code)
	}
}

func TestServeReturnsWhenAllHasEnded(t *testing.T) {
	hangs := behind(t, 0, "")
	s := show(t, time.Minute, hangs)
	// One request whose server hangs, one whose browser does not send its body, and a connection without a request.
	var open []net.Conn
	for _, text := range []string{
		"GET /regent/v1/installation HTTP/1.1\r\nHost: " + s.url.Host + "\r\nCookie: " + s.page.cookie + "=" + s.secret + "\r\n\r\n",
		"PATCH /clusters/root/apis/core.kcp.io/v1alpha1/shards/root HTTP/1.1\r\nHost: " + s.url.Host + "\r\nContent-Length: 9\r\nCookie: " + s.page.cookie + "=" + s.secret + "\r\n\r\n{",
		"",
	} {
		conn, err := net.Dial("tcp", s.url.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	for end := time.Now().Add(time.Minute); len(hangs.was()) == 0; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request does not reach the server")
		}
	}
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("Serve returned after %v", took)
	}
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) {
			t.Error("a connection is open")
		}
	}
	if s.page.open.begin() {
		t.Error("a request could begin")
	}
}

func TestAPageThatCannotBeServedSaysSo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := New([]ask.Place{{Config: &rest.Config{Host: "http://127.0.0.1:1"}}}).Serve(t.Context(), listener, func(string) {}); err == nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}
