package server

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/fence"
)

// as is a request by a user for a verb.
func as(ctx context.Context, name, verb string) context.Context {
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name})
	return request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb, Resource: "configmaps"})
}

func TestARequestsTokenIsInItsContext(t *testing.T) {
	sound := fence.Token{Cluster: "system:admin", Namespace: "kube-system", Name: "l", UID: "u", Holder: "h", Epoch: 1}
	header, err := sound.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		headers []string
		code    int
		token   fence.Token
	}{
		"none":      {nil, http.StatusOK, fence.Token{}},
		"one":       {[]string{header}, http.StatusOK, sound},
		"two":       {[]string{header, header}, http.StatusBadRequest, fence.Token{}},
		"malformed": {[]string{"epoch=1"}, http.StatusBadRequest, fence.Token{}},
		"empty":     {[]string{""}, http.StatusBadRequest, fence.Token{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got fence.Token
			filter := newTokenFilter(true, FencingEnforce, nil, nil, codecs())
			handler := filter.wrap(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = fence.From(req.Context()) }))
			req := httptest.NewRequestWithContext(as(t.Context(), "someone", "create"), http.MethodPost, "/api", nil)
			for _, h := range c.headers {
				req.Header.Add(fence.Header, h)
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)
			if answer.Code != c.code || got != c.token {
				t.Errorf("%d %s, token %v", answer.Code, answer.Body, got)
			}
			if c.code != http.StatusOK && !strings.Contains(answer.Body.String(), fence.Header) {
				t.Errorf("the answer does not name the header: %s", answer.Body)
			}
		})
	}
}

func TestALeadersWriteNeedsAToken(t *testing.T) {
	for _, c := range []struct {
		user, verb string
		election   bool
		mode       Fencing
		refused    bool
	}{
		{leaderUser, "create", true, "", true},
		{leaderUser, "create", true, FencingEnforce, true},
		{leaderUser, "update", true, FencingEnforce, true},
		{leaderUser, "patch", true, FencingEnforce, true},
		{leaderUser, "delete", true, FencingEnforce, true},
		{leaderUser, "deletecollection", true, FencingEnforce, true},
		{leaderUser, "create", true, FencingWarn, false},
		{leaderUser, "create", false, FencingEnforce, false},
		{leaderUser, "get", true, FencingEnforce, false},
		{leaderUser, "list", true, FencingEnforce, false},
		{leaderUser, "watch", true, FencingEnforce, false},
		{replicaUser, "create", true, FencingEnforce, false},
		{"someone", "create", true, FencingEnforce, false},
	} {
		served := false
		filter := newTokenFilter(c.election, c.mode, nil, nil, codecs())
		handler := filter.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(as(t.Context(), c.user, c.verb), http.MethodPost, "/api", nil))
		if c.refused != (answer.Code == http.StatusPreconditionFailed) || c.refused == served {
			t.Errorf("%+v: %d, served %t", c, answer.Code, served)
		}
		if c.refused && !strings.Contains(answer.Body.String(), string(fence.Reason)) {
			t.Errorf("%+v: %s", c, answer.Body)
		}
	}
}

// A term's clients send its token by themselves: a controller cannot forget it. Those without a term send none.
func TestATermsClientsCarryItsToken(t *testing.T) {
	var got []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got = req.Header.Values(fence.Header)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	r := &run{
		Server: &Server{}, host: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}},
	}
	token := fence.Token{Cluster: "system:admin", Namespace: "kube-system", Name: "l", UID: "u", Holder: "h", Epoch: 1}
	header, err := token.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token fence.Token
		want  []string
	}{{token, []string{header}}, {fence.Token{}, nil}} {
		deps, done, err := r.deps(c.token, "user", func(*http.Request) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx := clusters.With(t.Context(), "aa")
		configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
		for name, call := range map[string]func() error{
			"typed": func() error {
				return deps.Clients.Kube.CoreV1().ConfigMaps("n").Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"dynamic": func() error {
				return deps.Clients.Dynamic.Resource(configMaps).Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"metadata": func() error {
				return deps.Clients.Metadata.Resource(configMaps).Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"workspaces": func() error {
				return deps.Clients.Workspaces.Delete(ctx, "x", metav1.DeleteOptions{})
			},
			"logicalclusters": func() error {
				return deps.Clients.LogicalClusters.Delete(ctx, "x", metav1.DeleteOptions{})
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
		done()
	}
}

// The first refusal of whatever a term writes ends the term: all that follows would be refused too.
func TestARefusalEndsTheTerm(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		responsewriters.ErrorNegotiated(fence.NewRefusal("the term is over"), codecs(), schema.GroupVersion{Version: "v1"}, w, req)
	}))
	defer server.Close()
	cfg := withController(t, config(t, t.TempDir()), func(ctx context.Context, deps controllers.Deps) error {
		err := deps.Clients.Kube.CoreV1().ConfigMaps("n").Delete(clusters.With(ctx, "aa"), "x", metav1.DeleteOptions{})
		if !fence.IsFenced(err) {
			t.Errorf("got %v, want a refusal", err)
		}
		<-ctx.Done() // as one does that takes no notice
		return nil
	})
	_ = cfg.Serving.Listener.Close()
	r := &run{
		Server: &Server{cfg: cfg, tokens: newInProcess()}, probe: supervisor.NewProbe(), etcd: newEtcdCheck(nil, ""),
		host: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}},
	}
	stood := cfg.Election
	stood.Name, stood.Cluster, stood.Client = "l", clusters.SystemAdmin, electiontest.NewStore("l").Client()
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
		return r.control(ctx, r.cfg.Registry.Scoped(controllers.LeaderOnly), controllers.LeaderOnly, supervisor.Config{DrainTimeout: time.Second}, term.Token(), "token")
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if cause := <-ended; !errors.Is(cause, election.Fenced) {
		t.Errorf("the term ended because %v", cause)
	}
}
