package server

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
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
