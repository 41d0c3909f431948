package server

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/server/edge"
)

// Whoever writes a cluster's roles decides how long such a question takes, and whoever impersonates how many there are.
func TestQuestionsWhoMayImpersonateTakePlaces(t *testing.T) {
	r, slow := startLetting(t, func(a authorizer.Attributes) bool { return a.GetVerb() == "impersonate" })
	r.createCluster(t, "flooded")
	var flood sync.WaitGroup
	for n := range 50 {
		flood.Go(func() {
			r.askWith(t, http.MethodGet, "/clusters/flooded/api/v1/configmaps", "t-ann", http.Header{"Impersonate-User": {fmt.Sprint("u", n)}})
		})
	}
	until(t, "six questions are asked", func() bool { return slow.held.Load() >= 6 })
	if got := r.ask(t, http.MethodGet, "/clusters/flooded/api/v1/configmaps", "t-ben"); got.status != http.StatusOK {
		t.Errorf("another user of the cluster: %d %s", got.status, got.body)
	}
	if n := slow.held.Load(); n != 6 {
		t.Errorf("%d questions of one user are asked at once, of 16 places: want six", n)
	}
	close(slow.hold)
	flood.Wait()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// Ann may impersonate anybody in a cluster of their own. What Ann asks for in the name of others is on Ann's account:
// Ben has all that is Ben's.
func TestWhomSomebodyImpersonatesLosesNothing(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-ann,ann,1\nt-ben,ben,2\n")
	cfg.Limits = edge.Limits{RequestsInFlight: 64, RequestTimeout: time.Minute, Watches: 8}
	r := startReplica(t, cfg, func(s *Server) {
		s.generic.Authorization.Authorizer = &letting{Authorizer: s.generic.Authorization.Authorizer, holds: func(authorizer.Attributes) bool { return false }}
	})
	r.createCluster(t, "anns")
	r.createCluster(t, "bens")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func(cluster, bearer, as string) int {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/clusters/"+cluster+"/api/v1/configmaps?watch=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		if as != "" {
			req.Header.Set("Impersonate-User", as)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode
	}
	var got []int
	for range 6 {
		got = append(got, open("anns", "t-ann", "ben"))
	}
	if want := []int{200, 200, 200, 200, 429, 429}; !slices.Equal(got, want) {
		t.Errorf("watches in the name of another: %d, want %d", got, want)
	}
	if got := open("bens", "t-ben", ""); got != http.StatusOK {
		t.Errorf("a watch of ben's own: %d", got)
	}
	cancel()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
