package routing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
)

// resolverOf resolves what it maps, and every name of a system cluster.
type resolverOf map[string]logicalcluster.Name

func (k resolverOf) Resolve(_ context.Context, path logicalcluster.Path, _ func() error) (logicalcluster.Name, error) {
	if clusters.IsSystem(logicalcluster.Name(path.String())) {
		return logicalcluster.Name(path.String()), nil
	}
	if path == clusters.Root.Path() && k["root"] == "" {
		return "", NewUnavailable("not yet")
	}
	if name, ok := k[path.String()]; ok {
		return name, nil
	}
	return "", notFound(path)
}

func newFilter(resolver Resolver) *Filter {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return &Filter{
		Resolver:    resolver,
		InProcess:   func(req *http.Request) bool { return req.Header.Get("In-Process") != "" },
		RequestInfo: &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		CountedAs:   func(_ context.Context, who user.Info) string { return who.GetName() },
		Serializer:  serializer.NewCodecFactory(scheme),
	}
}

// outcome is what the handler behind the filter gets; status is what the client gets.
type outcome struct {
	cluster logicalcluster.Name
	path    string
	status  int
	header  http.Header
}

func serve(f *Filter, req *http.Request) outcome {
	var s outcome
	recorder := httptest.NewRecorder()
	f.Parse(f.Admit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		s.cluster, _ = clusters.From(req.Context())
		s.path = req.URL.EscapedPath()
	}))).ServeHTTP(recorder, req)
	s.status, s.header = recorder.Code, recorder.Header()
	return s
}

func TestARequestReachesTheClusterItNamesAndNoOther(t *testing.T) {
	f := newFilter(resolverOf{"root": "root", "root:a": "x1", "x1": "x1"})
	for _, c := range []struct {
		method, url string
		inProcess   bool
		want        outcome
	}{
		{url: "/clusters/root/api/v1/namespaces", want: outcome{cluster: "root", path: "/api/v1/namespaces", status: 200}},
		{url: "/clusters/root:a/api", want: outcome{cluster: "x1", path: "/api", status: 200}},
		{url: "/clusters/root%3Aa/api", want: outcome{cluster: "x1", path: "/api", status: 200}},
		{url: "/clusters/x1", want: outcome{cluster: "x1", path: "/", status: 200}},
		{url: "/clusters/system:admin/apis", want: outcome{cluster: "system:admin", path: "/apis", status: 200}},
		{url: "/clusters/unknown/api", want: outcome{status: 404}},
		{url: "/clusters/unknown/api", inProcess: true, want: outcome{cluster: "unknown", path: "/api", status: 200}},
		{url: "/clusters/root:a/api", inProcess: true, want: outcome{cluster: "x1", path: "/api", status: 200}},

		{url: "/clusters/*/api/v1/configmaps", want: outcome{cluster: "*", path: "/api/v1/configmaps", status: 200}},
		{url: "/clusters/%2A/api/v1/configmaps?watch=true", want: outcome{cluster: "*", path: "/api/v1/configmaps", status: 200}},
		{url: "/clusters/*/apis", want: outcome{cluster: "*", path: "/apis", status: 200}},
		{method: "POST", url: "/clusters/*/api/v1/namespaces", want: outcome{status: 405}},
		{method: "DELETE", url: "/clusters/*/api/v1/namespaces", inProcess: true, want: outcome{status: 405}},
		{url: "/clusters/*/api/v1/namespaces/default/configmaps", want: outcome{status: 400}},
		{url: "/clusters/*/api/v1/namespaces/default", want: outcome{status: 400}},
		{url: "/clusters/*/api/v1/namespaces/default/configmaps/a", want: outcome{status: 400}},
		{url: "/clusters/*/api/v1/namespaces/default/status", want: outcome{status: 400}},
		{url: "/clusters/*/api/v1/configmaps?fieldSelector=metadata.name=a", want: outcome{cluster: "*", path: "/api/v1/configmaps", status: 200}},
		{url: "/clusters/*/api/v1/configmaps?watch=true&fieldSelector=metadata.name=a", want: outcome{cluster: "*", path: "/api/v1/configmaps", status: 200}},
		{url: "/clusters/*/api/v1/configmaps/a?fieldSelector=metadata.name=a", want: outcome{status: 400}},

		{url: "/api/v1/namespaces", want: outcome{status: 404}},
		{url: "/openapi/v2", want: outcome{status: 404}},
		{url: "/", want: outcome{status: 404}},
		{url: "/readyz", want: outcome{path: "/readyz", status: 200}},
		{url: "/readyz/etcd", want: outcome{path: "/readyz/etcd", status: 200}},
		{url: "/clusters/unknown/livez", want: outcome{path: "/livez", status: 200}},
		{url: "/livez/../api/v1/secrets", want: outcome{status: 404}},

		{url: "/clusters//api", want: outcome{status: 400}},
		{url: "/clusters/Root/api", want: outcome{status: 400}},
		{url: "/clusters/root:/api", want: outcome{status: 400}},
		{url: "/clusters/root:*/api", want: outcome{status: 400}},
		{url: "/clusters/system:a%2Fb/api", want: outcome{status: 400}},
		{url: "/clusters/root/..%2Fx1/api", want: outcome{status: 400}},
		{url: "/clusters/root/../x1/api", want: outcome{status: 400}},
		{url: "/clusters/root//api", want: outcome{status: 400}},
		{url: "/clusters/root/api/v1/namespaces/a%2Fb", want: outcome{status: 400}},
	} {
		t.Run(c.method+c.url, func(t *testing.T) {
			if c.method == "" {
				c.method = http.MethodGet
			}
			req := httptest.NewRequest(c.method, c.url, nil)
			if c.inProcess {
				req.Header.Set("In-Process", "yes")
			}
			got := serve(f, req)
			got.header = nil
			if got.cluster != c.want.cluster || got.path != c.want.path || got.status != c.want.status {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRootIsUnavailableWithRetryAfterUntilBootstrapped(t *testing.T) {
	got := serve(newFilter(resolverOf{}), httptest.NewRequest(http.MethodGet, "/clusters/root/api", nil))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("got %d with Retry-After %q", got.status, got.header.Get("Retry-After"))
	}
}

// FuzzNoURLEscapesItsCluster checks that what the filter takes for the cluster is what stands in the URL in its place,
// and that nothing which cleans or decodes the rest once more arrives at another path.
func FuzzNoURLEscapesItsCluster(f *testing.F) {
	for _, seed := range []string{
		"/clusters/root/api", "/clusters/%2A/api", "/clusters/root%2f..%2fother/api", "/clusters/root/../other/api",
		"/clusters/root:a:b/apis/x", "/clusters/./root", "//clusters/root/api", "/clusters/system:a/%2e%2e/api",
		"/clusters/root/livez/../../other/api", "/livez/%2e%2e/api", "/clusters/*/api\x00", "/clusters/root%00/api",
		"/clusters/root%5c..%5cother/api", "/clusters/root;x/api", "/clusters/root?/api", "/readyz/clusters/root",
	} {
		f.Add(seed)
	}
	filter := newFilter(anything{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return
		}
		req := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
		got := serve(filter, req)
		if got.path == "" {
			return
		}
		rest, err := url.PathUnescape(got.path)
		if err != nil {
			t.Fatalf("%q: the path behind the filter does not decode: %v", raw, err)
		}
		if cleaned := path.Clean(rest); cleaned != rest && cleaned+"/" != rest {
			t.Fatalf("%q: the path behind the filter, %q, is not clean", raw, rest)
		}
		if got.cluster == "" {
			if !ofTheProcess(rest) {
				t.Fatalf("%q: %q was let through without a cluster", raw, rest)
			}
			return
		}
		if got.cluster != clusters.Wildcard && !clusters.IsValidName(got.cluster) && !got.cluster.Path().IsValid() {
			t.Fatalf("%q: cluster %q is not valid", raw, got.cluster)
		}
		want := "/clusters/" + got.cluster.String() + rest
		if u.Path != want && u.Path+"/" != want {
			t.Fatalf("%q: decoded %q, but taken apart as %q", raw, u.Path, want)
		}
	})
}

// anything resolves every path to itself.
type anything struct{}

func (anything) Resolve(_ context.Context, path logicalcluster.Path, _ func() error) (logicalcluster.Name, error) {
	return logicalcluster.Name(path.String()), nil
}
