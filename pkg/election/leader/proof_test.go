package leader_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/leader"
)

func fenced(cfg *leader.Config) { cfg.Fenced = true }

// Whoever says Fenced to a server that checks no tokens would have standbys lead beside a leader that can still write.
func TestAServerThatDoesNotFenceIsNotBelievedToDoSo(t *testing.T) {
	for name, c := range map[string]struct {
		there bool // the Lease
		says  string
	}{
		"it would make the Lease": {false, "success"},
		"it has the Lease":        {true, "already exists"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			if c.there {
				s.store.Free()
			}
			err := s.newLeader(t, fenced).Run(t.Context(), func(context.Context, election.Term) error {
				t.Error("it leads")
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), "Config.Fenced") || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "SucceedUnfenced") {
				t.Errorf("Run returned %v", err)
			}
			if n := len(s.store.History()); n > 1 || n == 1 && !c.there {
				t.Errorf("the question was a write: %d changes", n)
			}
		})
	}
}

// The namespace of the Lease may be made later, and the API may be served later: a 404 is no verdict. Nobody leads
// until the server has refused the question.
func TestAServerThatFindsNothingIsAskedAgain(t *testing.T) {
	s := newServer(t)
	s.store.Fence()
	missing := electiontest.Fault{Err: apierrors.NewNotFound(corev1.Resource("namespaces"), "default")}
	s.client.Next(electiontest.Create, missing, missing)
	var c terms
	l := s.newLeader(t, fenced)
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	if n := s.client.Count(electiontest.Create); n < 4 { // two without an answer, the proof, and the Lease
		t.Errorf("%d creations: it campaigned without a proof", n)
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAServerThatFencesProvesIt(t *testing.T) {
	s := newServer(t)
	s.store.Fence()
	var c terms
	l := s.newLeader(t, fenced)
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}

// An answer that says nothing about tokens is no answer: the process waits, and does not campaign.
func TestAProcessWaitsUntilTheServerCanProveThatItFences(t *testing.T) {
	s := newServer(t)
	s.store.Fence()
	s.client.Next(electiontest.Create, electiontest.Fault{Err: apierrors.NewUnauthorized("not yet")}, electiontest.Fault{Err: apierrors.NewServiceUnavailable("not yet")})
	var c terms
	l := s.newLeader(t, fenced)
	if err := l.Start(t.Context(), c.lead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", c.leads)
	if n := s.client.Count(electiontest.Create); n < 4 { // two without an answer, the proof, and the Lease
		t.Errorf("%d creations: it campaigned without a proof", n)
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAClusterThatTheServerCannotHaveIsNamed(t *testing.T) {
	var asked atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400,"message":"Fencing-Token header: no cluster"}`))
	}))
	defer web.Close()
	cfg := config()
	cfg.Fenced, cfg.SecretName, cfg.SecretBytes = true, "", []byte("a secret of this test")
	l, err := leader.New(&rest.Config{Host: web.URL}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = l.Run(t.Context(), func(context.Context, election.Term) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "Config.Cluster") || asked.Load() != 1 {
		t.Errorf("Run returned %v after %d requests", err, asked.Load())
	}
}

// What Adjust promises has to be proved like what the Config promises.
func TestAFenceThatAdjustPromisesHasToBeProved(t *testing.T) {
	for name, there := range map[string]bool{"it is there": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			if there {
				s.store.Fence()
			}
			l := s.newLeader(t, func(cfg *leader.Config) { cfg.Adjust = func(e *election.Config) { e.Fenced = true } })
			led := false
			err := l.Run(t.Context(), func(context.Context, election.Term) error { led = true; return election.ErrExit })
			if led != there || !there && !strings.Contains(err.Error(), "Config.Fenced") {
				t.Errorf("led: %v; Run returned %v", led, err)
			}
		})
	}
}
