package clientgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/clientgo"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
)

func fenced(cfg *election.Config) { cfg.Fenced = true }

// A replica that takes Fenced on a server that checks no tokens would be succeeded while it can still write.
func TestAServerThatDoesNotFenceIsNotBelievedToDoSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		diary := &diary{}
		elector, err := clientgo.NewLeaderElector(newConfig(electiontest.NewStore(leaseName).Client(), "me", diary, nil), fenced)
		if err != nil {
			t.Fatal(err)
		}
		said := func() (said any) {
			defer func() { said = recover() }()
			elector.Run(t.Context())
			return nil
		}()
		if err, ok := said.(error); !ok || !strings.Contains(err.Error(), "Config.Fenced") || !strings.Contains(err.Error(), "fence.FromContext") {
			t.Errorf("Run ended with %v", said)
		}
		if diary.has("started") || !diary.has("stopped") {
			t.Errorf("%q", diary.all())
		}
	})
}

// It is proved once, and the context of OnStartedLeading has the token of its term.
func TestTheWorkOfAFencedTermHasItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		store.Fence()
		tokens := make(chan fence.Token, 10)
		elector, err := clientgo.NewLeaderElector(newConfig(store.Client(), "me", &diary{}, func(ctx context.Context) {
			tokens <- fence.From(ctx)
			<-ctx.Done()
		}), fenced)
		if err != nil {
			t.Fatal(err)
		}
		for epoch := int64(1); epoch <= 3; epoch++ {
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() { defer close(over); elector.Run(ctx) }()
			if token := <-tokens; token.Epoch != epoch || token.Name != leaseName || token.UID == "" {
				t.Errorf("term %d has the token %v", epoch, token)
			}
			cancel()
			<-over
		}
	})
}

// A standby whose server cannot answer the question ends with its context, as without.
func TestAProcessThatWaitsForAProofEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := electiontest.NewStore(leaseName).Client()
		client.Always(electiontest.Fault{Hang: true})
		diary := &diary{}
		elector, err := clientgo.NewLeaderElector(newConfig(client, "me", diary, nil), fenced)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		elector.Run(ctx)
		if ctx.Err() == nil || diary.has("started") || !diary.has("stopped") {
			t.Errorf("%v, %q", ctx.Err(), diary.all())
		}
		client.Wait()
	})
}

// The clients of a term send its token, and the first write that is refused ends the term. Without a term nothing is
// sent.
func TestTheClientsOfATermCarryItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		refuse := false
		server := electiontest.Wire(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if got = req.Header.Values(fence.Header); refuse {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusPreconditionFailed)
				_ = json.NewEncoder(w).Encode(fence.NewRefusal("the term is over").(apierrors.APIStatus).Status())
			}
		}))
		send := func(ctx context.Context) error {
			client, err := rest.HTTPClientFor(clientgo.ForTerm(ctx, &rest.Config{Transport: server}))
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://in.memory", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		if err := send(t.Context()); !errors.Is(err, fence.ErrNoTerm) || got != nil {
			t.Errorf("a write without a term was sent, with %q: %v", got, err)
		}
		store := electiontest.NewStore(leaseName)
		store.Fence()
		elector, err := clientgo.NewLeaderElector(newConfig(store.Client(), "me", &diary{}, func(ctx context.Context) {
			if err := send(ctx); err != nil {
				t.Error(err)
			}
			if token, err := fence.Parse(got); err != nil || token.IsZero() || token != fence.From(ctx) {
				t.Errorf("the write had the token %v: %v", got, err)
			}
			refuse = true
			_ = send(ctx)
			synctest.Wait()
			if ctx.Err() == nil || !errors.Is(context.Cause(ctx), election.Fenced) {
				t.Errorf("after a write that was refused the term goes on: %v", context.Cause(ctx))
			}
		}), fenced)
		if err != nil {
			t.Fatal(err)
		}
		elector.Run(t.Context())
	})
}
