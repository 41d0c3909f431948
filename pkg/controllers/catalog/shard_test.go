package catalog

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/ranges"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

const prefix = "/registry"

// shard is real storage behind a real API server, with informers that last and no controllers yet. It has no
// authentication, and every cluster exists that is named: what the server's filters and admission add is the e2e's.
type shard struct {
	deps controllers.Deps
	// leader are the clients of a term. The tests' own, in deps, may write as they like.
	leader controllers.Clients
	etcd   *clientv3.Client
	url    string
}

func startShard(t *testing.T) *shard {
	t.Helper()
	client, err := storage.NewClient(storage.Config{
		Transport: etcdtest.Start(t),
		Prefix:    prefix,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	getter := storage.NewRESTOptionsGetter(client, func(schema.GroupResource) (storage.Encoding, error) { return custom.Encoding(), nil })
	customs, err := custom.Open(getter)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := apis.Open(apis.NewRESTOptionsGetter(client), customs)
	if err != nil {
		t.Fatal(err)
	}
	reader := stored.Reader()
	url := serve(t, stored, customs)

	connections := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(connections.CloseIdleConnections)
	s := &shard{etcd: client.Etcd(), url: url}
	s.deps = newDeps(t, &rest.Config{Host: url, QPS: -1}, &http.Client{Transport: clusters.Transport(connections)})
	s.leader = newDeps(t, &rest.Config{Host: url, QPS: -1}, &http.Client{
		Transport: controllertest.Decided(clusters.Transport(connections), func(err error) { t.Errorf("a write does not say what it was decided on: %v", err) }),
	}).Clients
	s.deps.Informers = controllers.NewInformers(holdUnmodified(t, reader), s.deps.Resources)
	s.startInformers(t)
	return s
}

// serve runs the API server of some storage until the test ends.
func serve(t *testing.T, stored *apis.Storage, objects *custom.Storage) (url string) {
	t.Helper()
	reader := stored.Reader()
	config := genericapiserver.NewConfig(apis.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = "127.0.0.1:0"
	config.LoopbackClientConfig = &rest.Config{}
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	openapi.Configure(config, apis.Scheme)
	server, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	if err := stored.Install(server, resource.Shards{Own: "root"}); err != nil {
		t.Fatal(err)
	}
	schemas, err := openapi.Metadata(apis.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	customs := custom.NewServer(objects, custom.HandlerConfig{
		Admission: custom.Terminating{}, Authorizer: config.Authorization.Authorizer, Schemas: schemas,
		Internal: func(ctx context.Context) bool { return true }, RequestTimeout: time.Minute, MaxRequestBytes: 3 << 20,
	})
	server.RegisterDestroyFunc(objects.Close)
	definitions := clusters.NewInformer(reader.Objects(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")), controllers.DefinitionIndexers())
	own := custom.NewOwn(definitions, objects.Contents, func(ctx context.Context, cluster logicalcluster.Name, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
		return reader.Definition(clusters.With(ctx, cluster), name)
	})
	bound := controllers.Informers{
		APIBindings: clusters.NewInformer(reader.Objects(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")), controllers.BindingIndexers()),
		APIResourceSchemas: clusters.NewInformer(reader.Objects(apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas")),
			controllers.OwnerIndexers[*apisv1alpha1.APIResourceSchema]()),
	}
	bindings := custom.NewBindings(bound, objects.Contents, custom.LiveBindings{
		List: func(ctx context.Context, cluster logicalcluster.Name) ([]*apisv1alpha2.APIBinding, error) {
			return reader.Bindings(clusters.With(ctx, cluster))
		},
		Schema: func(ctx context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
			return reader.Schema(clusters.With(ctx, cluster), name)
		},
	})
	listener := httptest.NewServer(inCluster(withRequestInfo(config, customs.Wrap(custom.NewUnion(own, bindings), apis.BuiltIn, server.PrepareRun().Handler))))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	running.Go(func() { _ = definitions.Run(ctx) })
	running.Go(func() { own.Run(ctx) })
	running.Go(func() { _ = bound.APIBindings.Run(ctx) })
	running.Go(func() { _ = bound.APIResourceSchemas.Run(ctx) })
	running.Go(func() { bindings.Run(ctx) })
	server.RunPostStartHooks(ctx)
	t.Cleanup(func() {
		cancel()
		listener.CloseClientConnections()
		listener.Close()
		customs.EndCalls()
		server.Destroy()
	})
	return listener.URL
}

// withRequestInfo is for what comes in front of upstream's chain.
func withRequestInfo(config *genericapiserver.Config, next http.Handler) http.Handler {
	resolver := genericapiserver.NewRequestInfoResolver(config)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, err := resolver.NewRequestInfo(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := request.WithUser(request.WithRequestInfo(req.Context(), info), &user.DefaultInfo{Name: "leader"})
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

func inCluster(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, path, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/clusters/"), "/")
		req = req.WithContext(clusters.With(req.Context(), logicalcluster.Name(name)))
		url := *req.URL
		url.Path, url.RawPath = "/"+path, ""
		req.URL, req.RequestURI = &url, url.RequestURI()
		next.ServeHTTP(w, req)
	})
}

func newDeps(t *testing.T, config *rest.Config, client *http.Client) controllers.Deps {
	t.Helper()
	kube, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err != nil {
		t.Fatal(err)
	}
	restClient := func(gv schema.GroupVersion) rest.Interface {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", apis.Codecs.WithoutConversion()
		out, err := rest.RESTClientForConfigAndClient(c, client)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	extensions := restClient(apiextensionsv1.SchemeGroupVersion)
	tenancy, core := restClient(tenancyv1alpha1.SchemeGroupVersion), restClient(corev1alpha1.SchemeGroupVersion)
	deps := controllers.Deps{
		Shard: "root", BaseURL: "https://shard", ReplicaURL: "https://shard", Capacity: 1000,
		Clients: controllers.Clients{
			Kube:     kube,
			Metadata: meta,
			Workspaces: typed("workspaces", tenancy, func() *tenancyv1alpha1.Workspace { return &tenancyv1alpha1.Workspace{} },
				func() *tenancyv1alpha1.WorkspaceList { return &tenancyv1alpha1.WorkspaceList{} }),
			LogicalClusters: typed("logicalclusters", core, func() *corev1alpha1.LogicalCluster { return &corev1alpha1.LogicalCluster{} },
				func() *corev1alpha1.LogicalClusterList { return &corev1alpha1.LogicalClusterList{} }),
			Definitions: typed("customresourcedefinitions", extensions, func() *apiextensionsv1.CustomResourceDefinition { return &apiextensionsv1.CustomResourceDefinition{} },
				func() *apiextensionsv1.CustomResourceDefinitionList {
					return &apiextensionsv1.CustomResourceDefinitionList{}
				}),
			Schemas: typed("apiresourceschemas", restClient(apisv1alpha1.SchemeGroupVersion), func() *apisv1alpha1.APIResourceSchema { return &apisv1alpha1.APIResourceSchema{} },
				func() *apisv1alpha1.APIResourceSchemaList { return &apisv1alpha1.APIResourceSchemaList{} }),
			Bindings: typed("apibindings", restClient(apisv1alpha2.SchemeGroupVersion), func() *apisv1alpha2.APIBinding { return &apisv1alpha2.APIBinding{} },
				func() *apisv1alpha2.APIBindingList { return &apisv1alpha2.APIBindingList{} }),
			Shards: typed("shards", core, func() *corev1alpha1.Shard { return &corev1alpha1.Shard{} }, func() *corev1alpha1.ShardList { return &corev1alpha1.ShardList{} }),
		},
	}
	for _, r := range apis.Resources() {
		deps.Resources = append(deps.Resources, controllers.Resource(r))
	}
	return deps
}

func typed[T clusters.Object, L runtime.Object](resource string, client rest.Interface, newObject func() T, newList func() L) *gentype.ClientWithList[T, L] {
	return gentype.NewClientWithList[T, L](resource, client, apis.ParameterCodec, "", newObject, newList)
}

func (s *shard) startInformers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for _, informer := range s.deps.Informers.All() {
		running.Go(func() { _ = informer.Run(ctx) })
	}
}

// divided is how many ranges the shard has that lead leads: each controller runs several times, as in as many
// processes.
const divided = 3

// lead runs a term of all controllers for each range, and returns what ends them.
func (s *shard) lead(t *testing.T) (end func()) {
	t.Helper()
	var ends []func()
	for k := range divided {
		ends = append(ends, s.leadRange(t, ranges.Range{Index: k, Of: divided}))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// leadRange runs a term of all controllers for a range, and returns what ends it.
func (s *shard) leadRange(t *testing.T, of ranges.Range) (end func()) {
	t.Helper()
	registry, err := Registry()
	if err != nil {
		t.Fatal(err)
	}
	deps := s.deps
	deps.Clients, deps.Range = s.leader, clusters.Range(of)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- supervisor.Run(ctx, registry.Scoped(controllers.LeaderOnly, controllers.Electing), deps, supervisor.Config{})
	}()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the term ended: %v", err)
		}
	})
	t.Cleanup(end)
	return end
}

// keys returns all keys of a cluster.
func (s *shard) keys(t *testing.T, clusters ...string) []string {
	t.Helper()
	resp, err := s.etcd.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		for _, cluster := range clusters {
			if strings.Contains(string(kv.Key), "/"+cluster+"/") {
				keys = append(keys, string(kv.Key))
			}
		}
	}
	return keys
}
