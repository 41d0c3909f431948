package server

import (
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
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

// startLetting starts a replica with two users and 16 places for requests, in which everything is allowed, and some of it is held.
func startLetting(t *testing.T, holds func(authorizer.Attributes) bool) (*replica, *letting) {
	t.Helper()
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-ann,ann,1\nt-ben,ben,2\n")
	cfg.Limits = Limits{RequestsInFlight: 16}
	l := &letting{holds: holds, hold: make(chan struct{})}
	r := startReplica(t, cfg, func(s *Server) {
		l.Authorizer = s.generic.Authorization.Authorizer
		s.generic.Authorization.Authorizer = l
	})
	return r, l
}

// One user of a cluster holds all that he can get, for as long as he likes. Who else is there gets in, and so does who is in another cluster.
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

// A watch has a place until it has sent what there is, or else a few watches would keep their tenant out for as long as they are open.
func TestAnOpenWatchHasNoPlace(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers)
	cfg.Limits = Limits{RequestsInFlight: 4, RequestTimeout: 20 * time.Second}
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
