package embed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/apiserver"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	sampleopenapi "k8s.io/sample-apiserver/pkg/generated/openapi"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/etcdtest"
)

const prefix = "/registry/wardle.example.com"

// world is the sample API server of Kubernetes over an etcd, with a guard, and the Lease of its leader.
type world struct {
	t      *testing.T
	way    storagebackend.TransportConfig
	guard  *etcdfence.Guard
	leases *etcdfence.LeaseClient
	url    string
	etcd   *clientv3.Client
	gate   *gate // nil: there is none
}

// newWorld starts one. Some of the tests change what it is made of.
func newWorld(t *testing.T, change ...func(*etcdfence.Config)) *world {
	t.Helper()
	w := &world{t: t, way: etcdtest.Start(t)}
	w.start(change...)
	return w
}

// newGatedWorld starts one whose stores reach etcd through a gate. Its Leases do without.
func newGatedWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, way: etcdtest.Start(t), gate: newGate()}
	w.way.EgressLookup = w.gate.lookup
	w.start()
	return w
}

func (w *world) start(change ...func(*etcdfence.Config)) {
	w.t.Helper()
	etcd := etcdOptions(w.way)
	made := etcdfence.Config{Etcd: etcd}
	for _, c := range change {
		c(&made)
	}
	config := genericConfig(w.t, etcd)
	made.Stored = config.RESTOptionsGetter
	guard, err := etcdfence.Install(w.t.Context(), made)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(guard.Uninstall)
	w.guard = guard
	if w.leases, err = guard.LeaseClient("default"); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.leases.Close)
	if w.gate != nil {
		w.gate.counts.Store(true) // for connections from now on: not for that of the Leases
	}
	config.BuildHandlerChainFunc = w.handlers()
	w.url = serve(w.t, config)
	w.etcd = w.dial()
}

func (w *world) handlers() func(http.Handler, *genericapiserver.Config) http.Handler {
	return func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(w.guard.Handler(handler), c)
	}
}

func etcdOptions(way storagebackend.TransportConfig) *options.EtcdOptions {
	etcd := options.NewEtcdOptions(storagebackend.NewDefaultConfig(prefix, apiserver.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)))
	to := &etcd.StorageConfig.Transport
	to.ServerList, to.CertFile, to.KeyFile, to.TrustedCAFile, to.EgressLookup = way.ServerList, way.CertFile, way.KeyFile, way.TrustedCAFile, way.EgressLookup
	return etcd
}

// genericConfig is what a server on k8s.io/apiserver begins with. The header "As" says whose a request is.
func genericConfig(t *testing.T, etcd *options.EtcdOptions) *genericapiserver.RecommendedConfig {
	t.Helper()
	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	namer := openapi.NewDefinitionNamer(apiserver.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(sampleopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(sampleopenapi.GetOpenAPIDefinitions, namer)
	config.EffectiveVersion = utilcompatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress, config.LoopbackClientConfig = "127.0.0.1:443", &rest.Config{}
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.Authentication.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "user-" + req.Header.Get("As")}}, true, nil
	})
	if err := etcd.ApplyTo(&config.Config); err != nil {
		t.Fatal(err)
	}
	return config
}

// serve starts the sample's server, and returns its URL.
func serve(t *testing.T, config *genericapiserver.RecommendedConfig) string {
	t.Helper()
	sample := apiserver.Config{GenericConfig: config}
	server, err := sample.Complete().New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.GenericAPIServer.Destroy)
	server.GenericAPIServer.PrepareRun()
	at := httptest.NewServer(server.GenericAPIServer.Handler)
	t.Cleanup(at.Close)
	return at.URL
}

// dial returns a client of etcd that is no server's.
func (w *world) dial() *clientv3.Client {
	w.t.Helper()
	files, err := (transport.TLSInfo{CertFile: w.way.CertFile, KeyFile: w.way.KeyFile, TrustedCAFile: w.way.TrustedCAFile}).ClientConfig()
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: w.way.ServerList, TLS: files})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// as returns a client whose requests carry a token.
func (w *world) as(token fence.Token) versioned.Interface {
	w.t.Helper()
	config := &rest.Config{Host: w.url, QPS: -1}
	config.Wrap(fence.Transport(fence.Of(token)))
	client, err := versioned.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

// edit changes the Lease, without a token, as others' acquisitions and edits do. It makes one if there is none.
func (w *world) edit(change func(*coordinationv1.LeaseSpec)) fence.Token {
	w.t.Helper()
	ctx := context.Background()
	was, err := w.leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=leader"})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(was.Items) == 0 {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}
		change(&lease.Spec)
		made, err := w.leases.Create(ctx, lease, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		return fence.OfLease(made)
	}
	change(&was.Items[0].Spec)
	made, err := w.leases.Update(ctx, &was.Items[0], metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // an elector renewed it
		return w.edit(change)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return fence.OfLease(made)
}

// take begins a term.
func (w *world) take(holder string) fence.Token {
	return w.edit(func(s *coordinationv1.LeaseSpec) {
		s.HolderIdentity, s.LeaseTransitions = &holder, ptr.To(ptr.Deref(s.LeaseTransitions, 0)+1)
	})
}

func (w *world) renew() {
	w.edit(func(s *coordinationv1.LeaseSpec) { s.RenewTime = ptr.To(metav1.NowMicro()) })
}

func (w *world) release() {
	w.edit(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To("") })
}

func (w *world) remove() {
	if err := w.leases.Delete(context.Background(), "leader", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// content is what etcd holds of everything but Leases: any write changes it.
func (w *world) content() (last int64, keys int) {
	w.t.Helper()
	got, err := w.etcd.Get(context.Background(), prefix+"/wardle.example.com/", clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		last = max(last, kv.ModRevision)
	}
	return last, len(got.Kvs)
}

// encrypted has Leases and flunders encrypted in etcd.
func encrypted(t *testing.T) func(*etcdfence.Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [leases.coordination.k8s.io, flunders.wardle.example.com]
  providers:
  - secretbox: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *etcdfence.Config) { c.Etcd.EncryptionProviderConfigFilepath = file }
}
