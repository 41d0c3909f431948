package clientgo_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/clientgo"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
)

func fenced(cfg *election.Config) { cfg.Fenced = true }

// Who takes Fenced on a server that checks no tokens would be succeeded while it can still write.
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

func TestTheClientsOfATermCarryItsToken(t *testing.T) {
	var got []string
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.Header.Values(fence.Header) }))
	defer web.Close()
	send := func(ctx context.Context) error {
		client, err := rest.HTTPClientFor(clientgo.ForTerm(ctx, &rest.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, web.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	token := fence.Token{Namespace: "default", Name: leaseName, UID: "u", Holder: "me", Epoch: 7}
	if err := send(fence.With(t.Context(), token)); err != nil {
		t.Fatal(err)
	}
	if parsed, err := fence.Parse(got); err != nil || parsed != token {
		t.Errorf("the write had the token %v: %v", got, err)
	}
	got = nil
	if err := send(t.Context()); !errors.Is(err, fence.ErrNoTerm) || got != nil {
		t.Errorf("a write without a term was sent, with %q: %v", got, err)
	}
}
