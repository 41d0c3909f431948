package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/edge"
)

// letting allows everything. What it is to hold waits until the channel is closed.
type letting struct {
	authorizer.Authorizer
	holds func(authorizer.Attributes) bool
	hold  chan struct{}
	held  atomic.Int32
}

func (l *letting) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if l.holds(a) {
		l.held.Add(1)
		<-l.hold
	}
	return authorizer.DecisionAllow, "", nil
}

// startLetting starts a replica with two users and 16 places for requests, in which everything is allowed, and some of
// it is held.
func startLetting(t *testing.T, holds func(authorizer.Attributes) bool) (*replica, *letting) {
	t.Helper()
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-ann,ann,1\nt-ben,ben,2\n")
	cfg.Limits = edge.Limits{RequestsInFlight: 16, RequestTimeout: 5 * time.Minute}
	l := &letting{holds: holds, hold: make(chan struct{})}
	r := startReplica(t, cfg, func(s *Server) {
		l.Authorizer = s.generic.Authorization.Authorizer
		s.generic.Authorization.Authorizer = l
	})
	return r, l
}

// One user of a cluster holds all that they can get, for as long as they like. Other users of the cluster get in, and
// so do those of another one.
func TestAFloodInOneClusterKeepsNobodyElseOut(t *testing.T) {
	r, everybody := startLetting(t, func(a authorizer.Attributes) bool { return a.GetPath() == "/hold" })
	r.createCluster(t, "flooded")
	r.createCluster(t, "quiet")
	var flood sync.WaitGroup
	for range 50 {
		flood.Go(func() { r.ask(t, http.MethodGet, "/clusters/flooded/hold", "t-ann") })
	}
	until(t, "six requests are handled", func() bool { return everybody.held.Load() >= 6 })
	for _, c := range []struct{ bearer, cluster string }{{"t-ben", "flooded"}, {"t-ben", "quiet"}, {"t-ann", "quiet"}} {
		began := time.Now()
		if got := r.ask(t, http.MethodGet, "/clusters/"+c.cluster+"/api/v1/namespaces/default/configmaps", c.bearer); got.status != http.StatusOK {
			t.Errorf("%s in %s: %d %s after %v", c.bearer, c.cluster, got.status, got.body, time.Since(began))
		}
	}
	if held := everybody.held.Load(); held != 6 {
		t.Errorf("one user has %d of 16 places, want three quarters of half of them", held)
	}
	close(everybody.hold)
	flood.Wait()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// One user has large lists sent to clients that read next to nothing, in as many clusters as they like.
// Others are answered meanwhile, and a list is whole in the end.
func TestSlowReadersKeepNobodyElseOut(t *testing.T) {
	r, _ := startLetting(t, func(authorizer.Attributes) bool { return false })
	r.createCluster(t, "quiet")
	const objects, size = 16, 500_000
	var slow []*http.Response
	for n := range 4 {
		cluster := logicalcluster.Name(fmt.Sprint("slow", n))
		r.createCluster(t, cluster.String())
		maps := r.adminIn(t, cluster).CoreV1().ConfigMaps("default")
		for i := range objects {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("a", i)}, Data: map[string]string{"a": strings.Repeat("x", size)}}
			if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			slow = append(slow, r.readsSlowly(t, "/clusters/"+cluster.String()+"/api/v1/namespaces/default/configmaps", "t-ann"))
		}
	}
	until(t, "all wait for their readers", func() bool {
		return r.metric(t, "regent_requests_places_reading") >= float64(len(slow)*objects*size/100_000)
	})
	for range 20 {
		for _, bearer := range []string{"t-ben", "t-ann"} {
			if got := r.ask(t, http.MethodGet, "/clusters/quiet/api/v1/namespaces/default/configmaps", bearer); got.status != http.StatusOK {
				t.Errorf("%s: %d %s", bearer, got.status, got.body)
			}
		}
	}
	for n, resp := range slow {
		var list corev1.ConfigMapList
		if n > 2 { // the others hang up
		} else if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Items) != objects+1 { // and the authorities
			t.Errorf("a slow client has got %d objects: %v", len(list.Items), err)
		}
		_ = resp.Body.Close()
	}
	until(t, "nothing is kept for them", func() bool { return r.metric(t, "regent_requests_places_reading") == 0 })
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// metric returns the value of a metric without labels.
func (r *replica) metric(t testing.TB, name string) float64 {
	t.Helper()
	raw, err := r.admin(t).Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(raw), "\n"+name+" ")
	text, _, _ := strings.Cut(after, "\n")
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// readsSlowly returns an answer of which next to nothing has been read.
func (r *replica) readsSlowly(t *testing.T, path, bearer string) *http.Response {
	t.Helper()
	trusted := r.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.NextProtos = nil // HTTP/1: each answer has a connection of its own
	transport := &http.Transport{TLSClientConfig: trusted, DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return resp
}

// A watch has a place until it has sent what there is, or else a few watches would keep their tenant out for as long as
// they are open.
func TestAnOpenWatchHasNoPlace(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers)
	cfg.Limits = edge.Limits{RequestsInFlight: 4, RequestTimeout: 20 * time.Second}
	r := startReplica(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client, err := rest.HTTPClientFor(r.configOf(t, "t-root", "system:admin"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/clusters/system:admin/api/v1/namespaces?watch=true&n="+strconv.Itoa(n), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer t-root")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", n, resp.Status)
		}
	}
	if got := r.ask(t, http.MethodGet, "/clusters/system:admin/api/v1/namespaces", "t-root"); got.status != http.StatusOK {
		t.Errorf("a request beside ten watches: %d %s", got.status, got.body)
	}
	cancel()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
