package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// entrance is a front that runs, before one replica of eu1 that has cluster c. It answers 401 to tokens that begin with
// "bad".
type entrance struct {
	*members
	front *Front
	trust *x509.CertPool
}

func (m *members) enter(limits Limits, timeout time.Duration, handler http.HandlerFunc) *entrance {
	m.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.Fatal(err)
	}
	m.cfg.Limits, m.cfg.Listener, m.cfg.Addresses = limits, listener, []net.IP{net.IPv4(127, 0, 0, 1)}
	e := &entrance{members: m, trust: x509.NewCertPool()}
	e.trust.AppendCertsFromPEM(m.bundle.CAPEM)
	if e.front, err = New(m.cfg); err != nil {
		m.Fatal(err)
	}
	e.front.bodyTimeout, e.front.answerTimeout, e.front.liveTimeout = timeout, timeout, time.Minute
	s, err := newShard(e.front.cfg, "eu1", "", []string{m.serve(handler).URL})
	if err != nil {
		m.Fatal(err)
	}
	e.front.shards["eu1"] = s
	e.front.index.set(logicalcluster.Name("c"), entry{shard: "eu1", path: "root:c"})
	ctx, stop := context.WithCancel(m.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.front.Run(ctx) }()
	m.Cleanup(func() { stop(); <-ended; s.replicas.close() })
	return e
}

// dial opens a connection of HTTP/1.1, with the administrator's certificate or none.
func (e *entrance) dial(admin bool) *tls.Conn {
	e.Helper()
	cfg := &tls.Config{RootCAs: e.trust, MinVersion: tls.VersionTLS12}
	if admin {
		pair, err := tls.X509KeyPair(e.bundle.AdminCertPEM, e.bundle.AdminKeyPEM)
		if err != nil {
			e.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	conn, err := tls.Dial("tcp", e.front.cfg.Listener.Addr().String(), cfg)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = conn.Close() })
	return conn
}

// send sends the head of a request for what is in c, without its end.
func (e *entrance) send(conn net.Conn, head ...string) {
	e.Helper()
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: front\r\n%s\r\n\r\n", strings.Replace(head[0], "@", clusters.RequestPath("c"), 1), strings.Join(head[1:], "\r\n")); err != nil {
		e.Fatal(err)
	}
}

// awaitUnderWay waits until so many requests and watches are under way.
func (e *entrance) awaitUnderWay(n int) {
	e.Helper()
	e.await(fmt.Sprintf("%d requests and watches are under way", n), func() bool {
		requests, watches := e.front.inflight.underWay()
		return requests+watches == n
	})
}

// await waits until what is so.
func (e *entrance) await(what string, so func() bool) {
	e.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			e.Fatalf("in vain: %s", what)
		}
	}
}

// answer reads an answer.
func (e *entrance) answer(conn net.Conn) (int, string) {
	e.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// introduce answers 401 to tokens that begin with bad.
func introduce(w http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.Header.Get("Authorization"), "Bearer bad") {
		w.WriteHeader(http.StatusUnauthorized)
		// of an answer whose length is not known the front waits for the request's end
		_ = http.NewResponseController(w).Flush()
		return
	}
	_, _ = fmt.Fprintf(w, "user=%s groups=%d as=%s token=%s upgrade=%s", req.Header.Get(clusters.RemoteUserHeader), len(req.Header.Values(clusters.RemoteGroupHeader)),
		req.Header.Get("Impersonate-User"), req.Header.Get("Authorization"), req.Header.Get("Upgrade"))
}

// Proxies drop what Connection lists. A front does not, or a request without Impersonate-User would have its sender's
// own rights, and one without its token would be nobody's.
func TestAClientTakesNothingOutOfItsRequest(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, introduce)
	for name, tc := range map[string]struct {
		admin   bool
		headers []string
		want    string
	}{
		"whom it impersonates":  {true, []string{"Connection: Impersonate-User", "Impersonate-User: bob"}, "user=admin groups=2 as=bob token= upgrade="},
		"its token":             {false, []string{"Connection: authorization", "Authorization: Bearer t"}, "user= groups=0 as= token=Bearer t upgrade="},
		"who it is":             {true, []string{"Connection: X-Remote-User", "X-Remote-User: eve", "x-remote-group: system:masters"}, "user=admin groups=2 as= token= upgrade="},
		"who it is, with token": {false, []string{"Authorization: Bearer t", "X-Remote-User: eve"}, "user= groups=0 as= token=Bearer t upgrade="},
		"HTTP":                  {true, []string{"Connection: Upgrade", "Upgrade: h2c"}, "user=admin groups=2 as= token= upgrade="},
	} {
		t.Run(name, func(t *testing.T) {
			conn := e.dial(tc.admin)
			e.send(conn, append([]string{"GET @/api"}, tc.headers...)...)
			if code, got := e.answer(conn); code != http.StatusOK || got != tc.want {
				t.Errorf("%d %q, want %q", code, got, tc.want)
			}
		})
	}
}

// An ordinary answer in the midst of a handshake tells a client nothing.
func TestWhoAsksForAWebsocketIsToldWhatToDo(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, introduce)
	for _, headers := range [][]string{{"Connection: Upgrade", "Upgrade: websocket"}, {"Connection: keep-alive, upgrade", "Upgrade: WebSocket"}} {
		conn := e.dial(true)
		e.send(conn, append([]string{"GET @/api/v1/configmaps?watch=true"}, headers...)...)
		if code, got := e.answer(conn); code != http.StatusBadRequest || !strings.Contains(got, "?watch=true") {
			t.Errorf("%q: %d %q", headers, code, got)
		}
	}
}

// Some clients escape colons, which names of roles and paths of clusters have.
func TestAnEscapedPathIsThatOfAShard(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.URL.Path) })
	for path, want := range map[string]struct {
		code int
		path string
	}{
		"/clusters/root%3Ac/api/a%3Ab":            {http.StatusOK, clusters.RequestPath("c") + "/api/a:b"},
		"/shards/eu1/clusters/root%3Ac/api/a%3Ab": {http.StatusOK, "/clusters/root:c/api/a:b"},
		"/shards/eu1/clusters/root%3Ac%2Fapi":     {http.StatusBadRequest, "encoded slashes"},
		"/shards/eu1/clusters/root/%2e%2e/x":      {http.StatusBadRequest, "dot segments"},
		"/shards/eu1%2Fclusters/root/api":         {http.StatusBadRequest, "encoded slashes"},
		"/shards/eu1/%6detrics":                   {http.StatusBadRequest, "encoded characters"},
	} {
		conn := e.dial(true)
		e.send(conn, "GET "+path)
		if code, got := e.answer(conn); code != want.code || !strings.Contains(got, want.path) {
			t.Errorf("%s: %d %q, want %d %q", path, code, got, want.code, want.path)
		}
	}
}

// Whoever makes up tokens counts for its address until a shard accepts one.
func TestMadeUpTokensTakeNobodysPlaces(t *testing.T) {
	e := newMembers(t).enter(Limits{Requests: 10, RequestsPerClient: 2}, time.Minute, introduce)
	ask := func(token string) (int, string) {
		conn := e.dial(false)
		e.send(conn, "GET @/api", "Authorization: Bearer "+token)
		return e.answer(conn)
	}
	if code, got := ask("good"); code != http.StatusOK {
		t.Fatal(code, got)
	}
	for n := range 2 {
		// which never come
		e.send(e.dial(false), "POST @/api", fmt.Sprintf("Authorization: Bearer bad%d", n), "Content-Length: 10")
	}
	e.awaitUnderWay(2)
	if code, got := ask("bad-more"); code != http.StatusTooManyRequests || !strings.Contains(got, limitRequestsPerClient) {
		t.Errorf("with more made-up tokens: %d %s", code, got)
	}
	if code, got := ask("good"); code != http.StatusOK {
		t.Errorf("with a token that was accepted: %d %s", code, got)
	}
}

// An answer repeats what was asked for, escaped. It must not fill the memory of the front, or wait for a client that
// does not read it.
func TestALongURLMakesNoLongAnswer(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, introduce)
	for _, path := range []string{"/shards/" + strings.Repeat("\xff", 900_000) + "/x", "/clusters/" + strings.Repeat("a", 900_000) + "/api"} {
		conn := e.dial(false)
		e.send(conn, "GET "+path, "Authorization: Bearer bad")
		if code, got := e.answer(conn); code < 400 || len(got) > 6*maxMessage || !strings.Contains(got, path[8:9]) && !strings.Contains(got, "xff") {
			t.Errorf("%d, %d bytes: %.200s", code, len(got), got)
		}
	}
}

// However many tokens a user has, it is one client for a shard, from its first answer on, whatever that is; and no
// shard makes a token count for whom others know.
func TestAUserIsOneClientWithAllItsTokens(t *testing.T) {
	var tokens tokens
	answerAbout := func(person string, code int) *http.Response {
		return &http.Response{StatusCode: code, Header: http.Header{clusters.CountedAsHeader: {url.PathEscape(person)}}}
	}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	of := func(token string) string { return tokens.account(token, req, nil) }
	answer := answerAbout("ann", http.StatusNotFound)
	if tokens.record("token x", "eu1", answer); len(answer.Header) != 0 {
		t.Errorf("the client gets %v", answer.Header)
	}
	tokens.record("token y", "eu1", answerAbout("ann", http.StatusOK))
	tokens.record("token z", "eu1", answerAbout("(accounts of c)", http.StatusOK))
	tokens.record("token w", "us1", answerAbout("ann", http.StatusOK))
	all := map[string]bool{of("token z"): true, of("token w"): true, clientOf(req, &user.DefaultInfo{Name: "ann"}): true, clientOf(req, &user.DefaultInfo{Name: "(accounts of c)"}): true}
	if of("token x") != of("token y") || len(all) != 4 || all[of("token x")] {
		t.Errorf("%q and %q, and others %v", of("token x"), of("token y"), all)
	}
	long := answerAbout(strings.Repeat("a", 100_000), http.StatusOK)
	if tokens.record("token v", "eu1", long); len(of("token v")) > 100 {
		t.Errorf("a long name takes %d bytes", len(of("token v")))
	}
	tokens.record("token x", "eu1", &http.Response{StatusCode: http.StatusUnauthorized})
	if got := of("token x"); got != addressOf(req) {
		t.Errorf("a token that is refused counts for %q", got)
	}
}

func TestATokenIsAcceptedUntilAShardRefusesIt(t *testing.T) {
	var tokens tokens
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, step := range []struct {
		code int
		own  bool
	}{{401, false}, {404, false}, {429, false}, {503, false}, {403, true}, {503, true}, {401, false}, {200, true}} {
		if tokens.record("token x", "eu1", &http.Response{StatusCode: step.code}); (tokens.account("token x", req, nil) == "token x") != step.own {
			t.Errorf("after %d: counts for itself %t, want %t", step.code, !step.own, step.own)
		}
	}
	for n := range maxTokens {
		tokens.record(fmt.Sprint(n), "eu1", &http.Response{StatusCode: http.StatusOK})
	}
	if len(tokens.accounts) > maxTokens {
		t.Errorf("%d are kept", len(tokens.accounts))
	}
	req.RemoteAddr = "[2001:db8::1]:1"
	one := tokens.account("token y", req, nil)
	if req.RemoteAddr = "[2001:db8::2]:1"; tokens.account("token y", req, nil) != one {
		t.Error("two addresses of one network are two clients")
	}
}

func TestWhoeverSendsOrReadsNothingLosesItsPlace(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Second, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, req.Body)
			return
		}
		for chunk := make([]byte, 1<<16); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	for name, head := range map[string][]string{
		"sends nothing":            {"POST @/api", "Content-Length: 10"},
		"reads nothing":            {"GET @/api"},
		"reads nothing of a watch": {"GET @/api/v1/pods?watch=1"},
	} {
		t.Run(name, func(t *testing.T) {
			e.send(e.dial(true), head...)
			e.awaitUnderWay(1)
			e.awaitUnderWay(0) // it has lost its place
		})
	}
}

func TestNamesThatDoNotExistTakeFewPlacesOfShards(t *testing.T) {
	var mu sync.Mutex
	var now, most int
	count := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		now += n
		most = max(most, now)
		return most
	}
	all := make(chan struct{})
	e := newMembers(t).enter(DefaultLimits(), time.Minute, func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/clusters/nope") {
			count(1)
			defer count(-1)
			select {
			case <-all:
			case <-req.Context().Done():
			}
		}
		w.WriteHeader(http.StatusNotFound)
	})
	e.front.mu.Lock()
	e.front.hasList = true
	e.front.mu.Unlock()
	e.await("the root shard is known", func() bool { _, ok := e.front.shard("root"); return ok })
	first := e.dial(true)
	e.await("the shard is connected: to connect again takes longer than it may on a busy machine", func() bool {
		e.send(first, "GET /clusters/none/api")
		_, got := e.answer(first)
		return strings.Contains(got, "not heard: root")
	})
	var conns []net.Conn
	for range 2 * maxSearches { // before the first request, which is under way for so long only
		conns = append(conns, e.dial(true))
	}
	for n, conn := range conns {
		e.send(conn, fmt.Sprintf("GET /clusters/nope%d/api", n))
	}
	e.awaitUnderWay(2 * maxSearches)
	close(all)
	for _, conn := range conns {
		if code, got := e.answer(conn); code != http.StatusServiceUnavailable || !strings.Contains(got, "is not heard") {
			t.Fatalf("%d %s", code, got)
		}
	}
	if got := count(0); got > maxSearches {
		t.Errorf("%d searches were under way, want at most %d", got, maxSearches)
	}
}

// What is wrong with one request is not its replica's fault: others do not go elsewhere.
func TestAFaultyRequestMakesNoReplicaUnready(t *testing.T) {
	m := newMembers(t)
	replica := m.serve(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/readyz" {
			_, _ = io.Copy(io.Discard, req.Body)
			panic(http.ErrAbortHandler)
		}
	})
	r := m.replicas(replica.URL)
	gone := errors.New("the client has gone")
	for name, req := range map[string]*http.Request{
		"its body breaks":         httptest.NewRequest(http.MethodPost, "https://"+host+"/", iotest.ErrReader(gone)),
		"a header is faulty":      httptest.NewRequest(http.MethodGet, "https://"+host+"/", nil),
		"the shard breaks it off": httptest.NewRequest(http.MethodDelete, "https://"+host+"/", nil),
	} {
		if name == "a header is faulty" {
			req.Header.Set("Upgrade", "websocket")
		}
		req.RequestURI = ""
		resp, err := r.send(req.WithContext(t.Context()), 0)
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: %s", name, resp.Status)
		}
		if r.all[0].unready.Load() {
			t.Errorf("%s: the replica counts as not ready", name)
		}
	}
}

// net/http panics when it shall send such a status, and each would be a label of metrics.
func TestAStatusThatHTTPDoesNotHaveIsNotPassedOn(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(777) })
	conn := e.dial(true)
	e.send(conn, "GET @/api")
	if code, got := e.answer(conn); code != http.StatusServiceUnavailable || !strings.Contains(got, "shard eu1 does not answer: its answer has status 777") {
		t.Errorf("%d %s", code, got)
	}
}

// Where shards are is for operators.
func TestOnlyAdministratorsAreToldWhyAShardDoesNotAnswer(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, admin := range []bool{true, false} {
		for _, path := range []string{"GET @/api", "POST @/api", "GET /clusters/root:nowhere/api"} {
			conn, head := e.dial(admin), []string{path, "Content-Length: 0"}
			if !admin {
				head = append(head, "Authorization: Bearer good")
			}
			e.send(conn, head...)
			code, got := e.answer(conn)
			if code < 500 || strings.Contains(got, "127.0.0.1") && !admin || !admin && strings.Contains(got, "does not answer:") || admin && strings.HasPrefix(path, "GET @") && !strings.Contains(got, "does not answer: ") {
				t.Errorf("%s, an administrator %t: %d %s", path, admin, code, got)
			}
		}
	}
}

// A connection outlives its replica's move by its requests, and not for ever.
func TestAConnectionThatNobodyUsesEnds(t *testing.T) {
	m := newMembers(t)
	closed := make(chan struct{}, 1)
	replica := m.serve(func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}, func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- struct{}{}
			}
		}
	})
	r := m.replicas(replica.URL)
	var err error
	r.all[0].transport, err = r.caller.Calls(r.shard, r.fingerprint, func(config *tls.Config) (*http.Transport, error) {
		transport, err := r.connect(replica.URL, config)
		transport.IdleConnTimeout /= 90 // as many seconds; 0 is for ever
		return transport, err
	})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodGet, "https://"+host+"/", nil)
	req.RequestURI = ""
	resp, err := r.send(req.WithContext(t.Context()), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.move([]string{m.down()}); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the connection stays")
	}
}
