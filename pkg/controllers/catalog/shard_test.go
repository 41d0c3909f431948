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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/controllers/supervisor"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/storage"
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
	store, err := etcd.Start(t.Context(), etcd.Config{Directory: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	client, err := storage.NewClient(storage.Config{
		Transport: store.Transport(),
		Prefix:    prefix,
	})
	if err != nil {
		t.Fatal(err)
	}
	reader := &apis.Reader{}
	url := serve(t, client, reader)

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

// serve runs the API server until the test ends, and makes reader read its storage.
func serve(t *testing.T, client *storage.Client, reader *apis.Reader) (url string) {
	t.Helper()
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
	if err := apis.Install(server, apis.NewRESTOptionsGetter(client), reader); err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(inCluster(server.PrepareRun().Handler))
	ctx, cancel := context.WithCancel(context.Background())
	server.RunPostStartHooks(ctx)
	t.Cleanup(func() {
		cancel()
		listener.CloseClientConnections()
		listener.Close()
		server.Destroy()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return listener.URL
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

// lead runs a term of all controllers and returns what ends it.
func (s *shard) lead(t *testing.T) (end func()) {
	t.Helper()
	registry, err := Registry()
	if err != nil {
		t.Fatal(err)
	}
	deps := s.deps
	deps.Clients = s.leader
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

// eventually waits for what the controllers bring about.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for start := time.Now(); !met(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("still not: %s", what)
		}
	}
}
