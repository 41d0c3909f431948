package apis

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/storage"
)

// shard is an API server over HTTP, with all that is served and no authentication.
type shard struct {
	url     string
	storage *storage.Client
	reader  *Reader
}

// startShard serves until the test ends. Its clusters exist because they are named.
func startShard(t *testing.T, way storagebackend.TransportConfig, plugin admission.Interface) *shard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := storage.NewClient(storage.Config{
		Transport: way,
		Prefix:    "/registry",
	})
	if err != nil {
		t.Fatal(err)
	}
	config := genericapiserver.NewConfig(Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = "127.0.0.1:0"
	config.LoopbackClientConfig = &rest.Config{}
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.AdmissionControl = plugin
	openapi.Configure(config, Scheme)
	server, err := openapi.New(config.Complete(nil), "test")
	if err != nil {
		t.Fatal(err)
	}
	if missing := undefined(); len(missing) > 0 {
		t.Fatalf("run `make generate`: there are no OpenAPI definitions of %q", missing)
	}
	stored, err := Open(NewRESTOptionsGetter(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := stored.Install(server, resource.Shards{Own: "here", Answers: func(shard string) bool { return shard != "down" }}); err != nil {
		t.Fatal(err)
	}
	prepared := server.PrepareRun()
	listener := httptest.NewUnstartedServer(inCluster(prepared.Handler))
	listener.EnableHTTP2 = true
	listener.Config.BaseContext = nil
	listener.Start()
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
	s := &shard{url: listener.URL, storage: client, reader: stored.Reader()}
	s.waitReady(t)
	return s
}

// waitReady returns when the watch caches are filled.
func (s *shard) waitReady(t *testing.T) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(s.url + "/readyz")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("the shard does not get ready")
}

// inCluster takes /clusters/<name> off the URL, without the server's rules about which clusters exist.
func inCluster(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rest, ok := strings.CutPrefix(req.URL.Path, "/clusters/")
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		name, path, _ := strings.Cut(rest, "/")
		req = req.WithContext(clusters.With(req.Context(), logicalcluster.Name(name)))
		url := *req.URL
		url.Path, url.RawPath = "/"+path, ""
		req.URL, req.RequestURI = &url, url.RequestURI()
		next.ServeHTTP(w, req)
	})
}

func (s *shard) config(cluster logicalcluster.Name) *rest.Config {
	return &rest.Config{Host: s.url + clusters.RequestPath(cluster), QPS: -1}
}

func (s *shard) kube(t *testing.T, cluster logicalcluster.Name) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.config(cluster))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *shard) dynamic(t *testing.T, cluster logicalcluster.Name) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(s.config(cluster))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// served returns all resources that clients discover, by version and name: "v1 configmaps".
func (s *shard) served(t *testing.T) map[string]metav1.APIResource {
	t.Helper()
	_, lists, err := s.kube(t, "aa").Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metav1.APIResource{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // a subresource
				out[list.GroupVersion+" "+r.Name] = r
			}
		}
	}
	return out
}

// expectLines fails the test unless its table has a line for each served resource, and no other.
func expectLines[T any](t *testing.T, served map[string]metav1.APIResource, lines map[string]T, what string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if _, ok := lines[name]; !ok {
			t.Errorf("%s is served, and has no %s here: add its line", name, what)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if _, ok := served[name]; !ok {
			t.Errorf("%s has %s here, and is not served: remove its line", name, what)
		}
	}
}
