package server

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// slowImpersonation allows everything. Questions who may impersonate whom wait until the channel is closed.
type slowImpersonation struct {
	authorizer.Authorizer
	hold  <-chan struct{}
	asked atomic.Int32
}

func (s *slowImpersonation) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "impersonate" {
		s.asked.Add(1)
		<-s.hold
	}
	return authorizer.DecisionAllow, "", nil
}

// Whoever writes a cluster's roles decides how long such a question takes, and whoever impersonates how many there are.
func TestQuestionsWhoMayImpersonateTakePlaces(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-ann,ann,1\nt-ben,ben,2\n")
	cfg.Limits = Limits{RequestsInFlight: 16}
	hold := make(chan struct{})
	slow := &slowImpersonation{hold: hold}
	r := startReplica(t, cfg, func(s *Server) {
		slow.Authorizer = s.generic.Authorization.Authorizer
		s.generic.Authorization.Authorizer = slow
	})
	r.createCluster(t, "flooded")
	var flood sync.WaitGroup
	for n := range 50 {
		flood.Go(func() {
			r.askWith(t, http.MethodGet, "/clusters/flooded/api/v1/configmaps", "t-ann", http.Header{"Impersonate-User": {fmt.Sprint("u", n)}})
		})
	}
	until(t, "six questions are asked", func() bool { return slow.asked.Load() >= 6 })
	if got := r.ask(t, http.MethodGet, "/clusters/flooded/api/v1/configmaps", "t-ben"); got.status != http.StatusOK {
		t.Errorf("another user of the cluster: %d %s", got.status, got.body)
	}
	if n := slow.asked.Load(); n != 6 {
		t.Errorf("%d questions of one user are asked at once, of 16 places: want six", n)
	}
	close(hold)
	flood.Wait()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
