package front

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/server/pki"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// members makes an installation's keys.
type members struct {
	testing.TB
	bundle *pki.Bundle
	cfg    Config
}

func newMembers(t testing.TB) *members {
	t.Helper()
	bundle, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	membership, err := bundle.NewMembership(pki.Member{Kind: pki.KindFront, Name: "f"}, pki.RootShard{Name: "root", URLs: []string{"https://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	m := &members{TB: t, bundle: bundle, cfg: Config{Membership: membership}}
	if m.cfg.keys, err = newKeys(m.cfg); err != nil {
		t.Fatal(err)
	}
	return m
}

// serve starts a replica of eu1.
func (m *members) serve(handler http.HandlerFunc, configure ...func(*http.Server)) *httptest.Server {
	m.Helper()
	return m.serveAs("eu1", handler, configure...)
}

// serveAs starts a replica of a shard.
func (m *members) serveAs(shard string, handler http.HandlerFunc, configure ...func(*http.Server)) *httptest.Server {
	m.Helper()
	certPEM, keyPEM, err := m.bundle.NewAuthority(pki.Member{Kind: pki.KindShard, Name: shard})
	if err != nil {
		m.Fatal(err)
	}
	authority, err := pki.LoadAuthority(certPEM, keyPEM)
	if err != nil {
		m.Fatal(err)
	}
	if certPEM, keyPEM, err = authority.Serve(nil, nil); err != nil {
		m.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		m.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, set := range configure {
		set(s.Config)
	}
	s.StartTLS()
	m.Cleanup(s.Close)
	return s
}

// down returns the URL of a replica that accepts no connection.
func (m *members) down() string {
	m.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return "https://" + listener.Addr().String()
}

func (m *members) replicas(urls ...string) *replicas {
	m.Helper()
	r, err := newReplicas(m.cfg, "eu1", "", urls)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(r.close)
	return r
}

// ask sends a request to eu1 and returns what it answers.
func (m *members) ask(r *replicas, method, body string, client uint64) (string, error) {
	m.Helper()
	req, err := http.NewRequestWithContext(m.Context(), method, "https://"+host+"/", strings.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	if req.GetBody = nil; body == "" { // a server's requests cannot be read twice
		req.Body = nil
	}
	resp, err := r.send(req, client)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return string(got), err
}

func TestAReplicasDeathCostsNoRequestThatCanBeRepeated(t *testing.T) {
	m := newMembers(t)
	var broken atomic.Int64
	breaking := m.serve(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if req.URL.Path != "/readyz" {
			broken.Add(1)
		}
		panic(http.ErrAbortHandler)
	})
	good := m.serve(func(w http.ResponseWriter, req *http.Request) {
		got, _ := io.ReadAll(req.Body)
		_, _ = io.WriteString(w, "eu1 got "+string(got))
	})
	for name, tc := range map[string]struct {
		first, method, body string
		want                string // empty: an error
		notSent             bool
	}{
		"a read, of one that is down":      {m.down(), http.MethodGet, "", "eu1 got ", false},
		"a read, of one that breaks it":    {breaking.URL, http.MethodGet, "", "eu1 got ", false},
		"a write, to one that is down":     {m.down(), http.MethodPost, "x", "eu1 got x", false},
		"a write, to one that breaks it":   {breaking.URL, http.MethodPost, "x", "", false},
		"a write without a body, the same": {breaking.URL, http.MethodDelete, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			before := broken.Load()
			got, err := m.ask(m.replicas(tc.first, good.URL), tc.method, tc.body, 0)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
			if err != nil && wasNotSent(err) {
				t.Errorf("it was sent: %v", err)
			}
			if tc.first == breaking.URL && broken.Load() != before+1 {
				t.Errorf("the first replica got it %d times", broken.Load()-before)
			}
		})
	}
	if _, err := m.ask(m.replicas(m.down(), m.down()), http.MethodPost, "x", 0); err == nil || !wasNotSent(err) {
		t.Errorf("nobody is there: %v", err)
	}
	// One that is down first, then one that breaks it: it was sent.
	if _, err := m.ask(m.replicas(m.down(), breaking.URL), http.MethodPost, "x", 0); err == nil || wasNotSent(err) {
		t.Errorf("the second one got it: %v", err)
	}
}

func TestClientsStayWithTheirReplicaWhileItIsReady(t *testing.T) {
	m := newMembers(t)
	var ready [2]atomic.Bool
	replica := func(n int) string {
		ready[n].Store(true)
		return m.serve(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/readyz" && !ready[n].Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, []string{"a", "b"}[n])
		}).URL
	}
	r := m.replicas(replica(0), replica(1))
	who := func(client uint64) string {
		got, err := m.ask(r, http.MethodGet, "", client)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 3 {
		if a, b := who(0), who(1); a == b {
			t.Errorf("both clients ask %s", a)
		}
		if who(0) != who(2) {
			t.Error("a client changes")
		}
	}
	first := who(0)
	n := strings.Index("ab", first)
	ready[n].Store(false) // it still answers
	r.look(t.Context())
	if who(0) == first || who(1) == first {
		t.Errorf("%s is asked although it is not ready", first)
	}
	ready[n].Store(true)
	r.look(t.Context())
	if who(0) != first {
		t.Errorf("%s is ready, and its client does not come back", first)
	}
}

func TestReplicasMove(t *testing.T) {
	m := newMembers(t)
	at := func(name string) string {
		return m.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }).URL
	}
	old, kept, moved := at("old"), at("kept"), at("moved")
	r := m.replicas(old, kept)
	before := r.all[1]
	if err := r.move([]string{kept, moved}); err != nil {
		t.Fatal(err)
	}
	if r.all[0] != before {
		t.Error("a replica that stays gets new connections")
	}
	for client := range uint64(4) {
		if got, err := m.ask(r, http.MethodGet, "", client); err != nil || got == "old" {
			t.Errorf("%q, %v", got, err)
		}
	}
	for _, faulty := range [][]string{nil, {"http://x"}, {kept, "::"}} {
		if err := r.move(faulty); err == nil || !strings.Contains(err.Error(), "regent shard set eu1") {
			t.Errorf("%q: %v", faulty, err)
		}
	}
	if got, err := m.ask(r, http.MethodGet, "", 0); err != nil || got != "kept" {
		t.Errorf("after faulty URLs: %q, %v", got, err)
	}
}

// A replica that is about to stop begins no watch. The front learns a second later that it is not ready.
func TestAWatchIsBegunAtAReplicaThatStays(t *testing.T) {
	m := newMembers(t)
	var stops atomic.Bool
	serve := func(name string) *httptest.Server {
		return m.serve(func(w http.ResponseWriter, req *http.Request) {
			if name == "all stop" || name == "stops" && stops.Load() {
				if req.URL.RawQuery == "late" {
					w.Header().Set("Retry-After", "1")
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, name)
		})
	}
	stopping, staying, alsoStopping := serve("stops"), serve("stays"), serve("all stop")
	watch := func(r *replicas, query string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/api/v1/configmaps"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.send(req, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	r := m.replicas(stopping.URL, staying.URL)
	for _, c := range []struct {
		stops       bool
		query, want string
		status      int
	}{
		{false, "?watch=true", "stops", http.StatusOK},
		// anything else that it refuses, it refuses for another reason
		{true, "", "stops", http.StatusServiceUnavailable},
		{true, "?watch=true", "stays", http.StatusOK},
		{true, "", "stays", http.StatusOK}, // it is known by now
	} {
		stops.Store(c.stops)
		if status, body := watch(r, c.query); status != c.status || body != c.want {
			t.Errorf("stops: %t, query %q: %d from %q, want %d from %q", c.stops, c.query, status, body, c.status, c.want)
		}
	}
	if status, body := watch(m.replicas(stopping.URL, staying.URL), "?late"); status != http.StatusOK || body != "stays" {
		t.Errorf("a read comes late to one that stops, and the client gets %d from %q", status, body)
	}
	r = m.replicas(stopping.URL, alsoStopping.URL)
	if status, body := watch(r, "?watch=true"); status != http.StatusServiceUnavailable || body != "all stop" {
		t.Errorf("all refuse a watch, and the client gets %d from %q", status, body)
	}
	r = m.replicas(stopping.URL, m.down())
	if status, body := watch(r, "?watch=true"); status != http.StatusServiceUnavailable || body != "stops" {
		t.Errorf("one refuses a watch and the other is down, and the client gets %d from %q", status, body)
	}
}

// A client that goes away while the front asks whether its replica is ready takes the replica away from nobody.
func TestAClientThatGoesAwayMakesNoReplicaUnready(t *testing.T) {
	m := newMembers(t)
	for name, fail := range map[string]func(http.ResponseWriter){
		"a watch that is refused": func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"a broken connection":     func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		ctx, leave := context.WithCancel(t.Context())
		server := m.serve(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/readyz" {
				fail(w)
				return
			}
			leave()
			select { // whoever gives up with the client is not there for the answer
			case <-req.Context().Done():
			case <-time.After(readyPeriod / 4):
			}
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/api/v1/configmaps?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := m.replicas(server.URL)
		if resp, err := r.send(req, 0); err == nil {
			_ = resp.Body.Close()
		}
		if ctx.Err() == nil || r.all[0].unready.Load() {
			t.Errorf("%s: asked %t, unready %t", name, ctx.Err() != nil, r.all[0].unready.Load())
		}
		leave()
	}
}

// leaveUntouched serves one HTTP/2 connection: it waits for the body of the first request, and then says that it stops,
// and has begun with none.
func leaveUntouched(t *testing.T, conn *tls.Conn) {
	t.Helper()
	const data, settings, goAway = 0, 4, 7
	frame := func(kind byte, payload ...byte) {
		if _, err := conn.Write(append([]byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, 0}, payload...)); err != nil {
			t.Error(err)
		}
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		t.Error(err)
	}
	frame(settings)
	for header := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, header); err != nil {
			t.Errorf("no body came: %v", err)
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(header[0])<<16|int64(header[1])<<8|int64(header[2])); err != nil {
			t.Error(err)
		}
		if header[3] == data {
			break
		}
	}
	frame(goAway, make([]byte, 8)...)
	_, _ = io.Copy(io.Discard, conn) // until the client has read that
}

// A replica that stops may say of a write that it has not begun with it, however much of it was sent. The next one gets
// it then, once.
func TestAWriteThatAStoppingReplicaHasNotBegunWithGoesToTheNextOne(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		fine bool
	}{
		"short":         {"something", true},
		"just kept":     {strings.Repeat("x", maxKept), true},
		"too much kept": {strings.Repeat("x", maxKept+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMembers(t)
			var stopping *httptest.Server
			stopping = m.serve(nil, func(s *http.Server) {
				s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
					_ = stopping.Listener.Close()
					leaveUntouched(t, conn)
				}}
			})
			var got []string
			staying := m.serve(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				got = append(got, string(body))
			})
			_, err := m.ask(m.replicas(stopping.URL, staying.URL), http.MethodPost, c.body, 0)
			if (err == nil) != c.fine {
				t.Errorf("the write fails with %v, want it to succeed: %t", err, c.fine)
			}
			if want := []string{c.body}; c.fine && !slices.Equal(got, want) || !c.fine && len(got) > 0 {
				t.Errorf("the replica that stays got %d writes, want %t", len(got), c.fine)
			}
		})
	}
}
