package terms

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/loopback"
)

// serving is an API server of this process that is one function.
func serving(handler http.HandlerFunc) *loopback.Server {
	api := &loopback.Server{}
	api.Serve(handler)
	return api
}

// writing is a controller that is one function.
type writing func(ctx context.Context) error

func (w writing) Run(ctx context.Context) error { return w(ctx) }

// A term's clients send its token by themselves: a controller cannot forget it. Those without a term send none.
func TestATermsClientsCarryItsToken(t *testing.T) {
	var got []string
	api := serving(func(w http.ResponseWriter, req *http.Request) {
		got = req.Header.Values(fence.Header)
		w.WriteHeader(http.StatusNotFound)
	})
	token := fence.Token{Cluster: "system:admin", Namespace: "kube-system", Name: "l", UID: "u", Holder: "h", Epoch: 1}
	header, err := token.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token fence.Token
		want  []string
	}{{token, []string{header}}, {fence.Token{}, nil}} {
		client := (&Runner{cfg: Config{API: api}}).newClient(set{token: c.token, user: "token"}, func(*http.Request) {})
		clients, err := client.Clients()
		if err != nil {
			t.Fatal(err)
		}
		ctx := clusters.With(t.Context(), "aa")
		configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
		for name, call := range map[string]func() error{
			"typed": func() error {
				return clients.Kube.CoreV1().ConfigMaps("n").Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"dynamic": func() error {
				return clients.Dynamic.Resource(configMaps).Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"metadata": func() error {
				return clients.Metadata.Resource(configMaps).Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"workspaces": func() error {
				return clients.Workspaces.Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"logicalclusters": func() error {
				return clients.LogicalClusters.Delete(ctx, "x", metav1.DeleteOptions{})
			},
		} {
			got = []string{"was not called"}
			if err := call(); !apierrors.IsNotFound(err) {
				t.Fatalf("%s: %v", name, err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s sent %q, want %q", name, got, c.want)
			}
		}
		client.Close()
	}
}

// The first refusal of whatever a term writes ends the term: all that follows would be refused too.
func TestARefusalEndsTheTerm(t *testing.T) {
	api := serving(func(w http.ResponseWriter, req *http.Request) {
		responsewriters.ErrorNegotiated(fence.NewRefusal("the term is over"), scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, req)
	})
	registry, err := controllers.NewRegistry(controllers.Descriptor{Name: "writes", New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
		return writing(func(ctx context.Context) error {
			err := deps.Clients.Kube.CoreV1().ConfigMaps("n").Delete(clusters.With(ctx, "aa"), "x", metav1.DeleteOptions{})
			if !fence.IsFenced(err) {
				t.Errorf("got %v, want a refusal", err)
			}
			<-ctx.Done() // as one does that takes no notice
			return nil
		}), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Registry: registry, API: api, LeaderToken: "token", Supervision: supervisor.Config{DrainTimeout: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	stood := election.DefaultConfig()
	stood.Namespace, stood.Name, stood.Cluster, stood.Client = "kube-system", "l", clusters.SystemAdmin, electiontest.NewStore("l").Client()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	elector, err := election.New(stood)
	if err != nil {
		t.Fatal(err)
	}
	if err := elector.Run(ctx, func(ctx context.Context, term election.Term) error {
		defer func() {
			ended <- context.Cause(ctx)
			cancel()
		}()
		return r.run(ctx, set{user: r.cfg.LeaderToken, token: term.Token(), run: func(ctx context.Context, deps controllers.Deps) error {
			return supervisor.Run(ctx, registry.Scoped(controllers.LeaderOnly), deps, r.supervision(part{scope: controllers.LeaderOnly}))
		}})
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if cause := <-ended; !errors.Is(cause, election.Fenced) {
		t.Errorf("the term ended because %v", cause)
	}
}
