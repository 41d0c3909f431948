// Package embedded tests what this module's libraries promise to other API servers, in one on k8s.io/apiserver.
package embedded

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // as kube-apiserver

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/leader"
)

// patience bounds all that a test waits for.
const patience = time.Minute

// wait fails the test if c is not closed in time.
func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not in time: %s", what)
	}
}

// embedder is an API server on k8s.io/apiserver that serves one Lease, and leads under it.
type embedder struct {
	store  *electiontest.Store
	server *genericapiserver.GenericAPIServer
	// loopback is the configuration of the server's client of itself.
	loopback *rest.Config
	// held, until it is closed, holds up the Lease's handler.
	held chan struct{}
	// unready, until it is closed, makes /readyz fail.
	unready chan struct{}
}

func newEmbedder(t *testing.T) *embedder {
	t.Helper()
	e := &embedder{store: electiontest.NewStore("example"), held: make(chan struct{}), unready: make(chan struct{})}
	cfg := genericapiserver.NewRecommendedConfig(serializer.NewCodecFactory(scheme.Scheme))
	serving := options.NewSecureServingOptions()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving.Listener, serving.BindPort, serving.BindAddress = listener, listener.Addr().(*net.TCPAddr).Port, net.IPv4(127, 0, 0, 1)
	serving.ServerCert.CertDirectory = ""
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{serving.BindAddress}); err != nil {
		t.Fatal(err)
	}
	if err := serving.WithLoopback().ApplyTo(&cfg.SecureServing, &cfg.LoopbackClientConfig); err != nil {
		t.Fatal(err)
	}
	cfg.SkipOpenAPIInstallation, cfg.EffectiveVersion = true, compatibility.DefaultBuildEffectiveVersion()
	cfg.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	cfg.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	cfg.AddReadyzChecks(healthz.NamedCheck("held", func(*http.Request) error {
		select {
		case <-e.unready:
			return nil
		default:
			return http.ErrServerClosed
		}
	}))
	e.loopback = cfg.LoopbackClientConfig
	if e.server, err = cfg.Complete().New("embedder", genericapiserver.NewEmptyDelegate()); err != nil {
		t.Fatal(err)
	}
	leases := electiontest.Handler(e.store.Client())
	e.server.Handler.NonGoRestfulMux.HandlePrefix(electiontest.LeasesPath, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-e.held:
		case <-req.Context().Done():
			return
		}
		leases.ServeHTTP(w, req)
	}))
	return e
}

// config is what the embedder writes.
func config() leader.Config {
	return leader.Config{Namespace: "default", Name: "example", SecretBytes: []byte("a secret of this test"), LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second}
}

// In an API server, Start is called in a post-start hook, when the server is not ready and may not answer yet; the
// server gets ready all the same, and the process leads when it answers. Stop is called in a pre-shutdown hook: the
// work is joined and the lease released while the server answers. Nothing is left.
func TestAnAPIServerLeadsBetweenItsHooks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	e := newEmbedder(t)
	l, err := leader.New(e.loopback, config())
	if err != nil {
		t.Fatal(err)
	}
	var joined atomic.Bool
	started, leads := make(chan struct{}), make(chan struct{})
	lead := func(ctx context.Context, _ election.Term) error {
		close(leads)
		<-ctx.Done()
		joined.Store(true)
		return nil
	}
	e.server.AddPostStartHookOrDie("lead", func(hook genericapiserver.PostStartHookContext) error {
		defer close(started)
		return l.Start(hook, lead)
	})
	stopped := make(chan error, 1)
	err = e.server.AddPreShutdownHook("lead", func() error {
		stopped <- l.Stop()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := e.server.PrepareRun().RunWithContext(ctx); err != nil {
			t.Error(err)
		}
	}()
	wait(t, started, "the post-start hook returned, although the server does not answer")
	if e.store.Lease() != nil {
		t.Error("the Lease is there before the server answers")
	}
	close(e.held)
	wait(t, leads, "it leads although it is not ready")
	close(e.unready)

	cancel()
	wait(t, over, "the server ended")
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Fatal("the pre-shutdown hook was not called")
	}
	if !joined.Load() || e.store.Holder() != "" {
		t.Errorf("the work was joined: %v, the lease is held by %q", joined.Load(), e.store.Holder())
	}
}

// A server that is stopped before it answers ends without delay.
func TestAnAPIServerThatNeverAnsweredEnds(t *testing.T) {
	e := newEmbedder(t)
	l, err := leader.New(e.loopback, config())
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	e.server.AddPostStartHookOrDie("lead", func(hook genericapiserver.PostStartHookContext) error {
		defer close(started)
		return l.Start(hook, func(context.Context, election.Term) error { t.Error("it leads"); return nil })
	})
	if err := e.server.AddPreShutdownHook("lead", l.Stop); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = e.server.PrepareRun().RunWithContext(ctx)
	}()
	wait(t, started, "the post-start hook returned")
	cancel()
	wait(t, over, "the server ended")
}
