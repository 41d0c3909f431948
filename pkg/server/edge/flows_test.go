package edge

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/fairness"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// inCache resolves two paths to one cluster, and has no other.
type inCache struct{}

func (inCache) Resolve(_ context.Context, path logicalcluster.Path, mayRead func() error) (logicalcluster.Name, error) {
	if path.String() == "root:a" || path.String() == "x1" {
		return "x1", nil
	}
	if err := mayRead(); err != nil {
		return "", err
	}
	panic("storage is read for " + path.String())
}

// through calls f with the context of a request behind routing.
func through(t *testing.T, url string, f func(ctx context.Context, filter *routing.Filter)) {
	t.Helper()
	info := genericapiserver.NewRequestInfoResolver(genericapiserver.NewConfig(apis.Codecs))
	filter := &routing.Filter{Resolver: inCache{}, InProcess: func(*http.Request) bool { return false }, RequestInfo: info, CountedAs: countedAs, Serializer: apis.Codecs}
	filter.Parse(fairness.WithQuery(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		parsed, err := info.NewRequestInfo(req)
		if err != nil {
			t.Fatal(err)
		}
		f(request.WithRequestInfo(req.Context(), parsed), filter)
	}))).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, nil))
}

func TestForWhomARequestCounts(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann", Groups: []string{user.AllAuthenticated}}
	for _, c := range []struct {
		url  string
		who  user.Info
		want fairness.Flow
	}{
		{"/clusters/x1/api/v1/namespaces", ann, fairness.Flow{Tenant: "x1", User: "ann", Person: "ann"}},
		{"/clusters/root:a/api/v1/namespaces", ann, fairness.Flow{Tenant: "x1", User: "ann", Person: "ann"}},
		{"/clusters/made-up/api", ann, fairness.Flow{Tenant: tenantUnknown, User: "ann", Person: "ann"}},
		{"/clusters/x1:made:up/api", ann, fairness.Flow{Tenant: tenantUnknown, User: "ann", Person: "ann"}},
		{"/clusters/Bad/api", ann, fairness.Flow{Tenant: tenantUnknown, User: "ann", Person: "ann"}},
		{"/nowhere", ann, fairness.Flow{Tenant: tenantUnknown, User: "ann", Person: "ann"}},
		{"/metrics", ann, fairness.Flow{Tenant: tenantProcess, User: "ann", Person: "ann", Background: true}},
		{"/clusters/*/api/v1/namespaces", ann, fairness.Flow{Tenant: "*", User: "ann", Person: "ann"}},
		{"/clusters/x1/api", &user.DefaultInfo{Name: "rita", Groups: []string{user.SystemPrivilegedGroup}}, fairness.Flow{Tenant: "(administrator) rita", User: "rita", Privileged: true, Background: true}},
		{"/clusters/*/api", &identity.MemberUser{DefaultInfo: user.DefaultInfo{Name: "system:regent:shard:eu1"}, Member: pki.Member{Kind: pki.KindShard}}, fairness.Flow{Tenant: "(member) system:regent:shard:eu1", User: "system:regent:shard:eu1", Background: true}},
	} {
		through(t, c.url, func(ctx context.Context, filter *routing.Filter) {
			if got := (&flows{filter}).ofRequest(ctx, flowcontrol.RequestDigest{User: c.who}); got != c.want {
				t.Errorf("%s of %s counts for %+v, want %+v", c.url, c.who.GetName(), got, c.want)
			}
			if got := (&flows{filter}).ofContext(request.WithUser(ctx, c.who)); got != c.want {
				t.Errorf("a watch of %s by %s counts for %+v", c.url, c.who.GetName(), got)
			}
		})
	}
}

// holding is what cluster x1 has, and all others together.
type holding map[logicalcluster.Name]storage.Amount

func (h holding) Stored(cluster logicalcluster.Name, resource schema.GroupResource) storage.Amount {
	if resource != corev1.Resource("configmaps") && resource != custom.Resource {
		return storage.Amount{}
	}
	return h[cluster]
}

func TestListsTakeAsManyPlacesAsTheyAreLarge(t *testing.T) {
	usage := holding{"x1": {Objects: 1000, Bytes: 500_000}, clusters.Wildcard: {Objects: 100_000, Bytes: 50_000_000}}
	for url, want := range map[string]int{
		"/clusters/x1/api/v1/configmaps":                                                     1 + 5 + 10,
		"/clusters/root:a/api/v1/namespaces/default/configmaps":                              1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?limit=100":                                           1 + 0 + 1,
		"/clusters/x1/api/v1/configmaps?limit=100000":                                        1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?limit=many":                                          1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?labelSelector=a%3Db":                                 1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?labelSelector=a%3Db&limit=1":                         1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?fieldSelector=metadata.namespace%3Db&limit=1":        1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?watch=true":                                          1 + 5 + 10,
		"/clusters/x1/api/v1/configmaps?watch=true&resourceVersion=7":                        1,
		"/clusters/x1/api/v1/configmaps?watch=true&resourceVersion=7&sendInitialEvents":      1,
		"/clusters/x1/api/v1/configmaps?watch=true&resourceVersion=7&sendInitialEvents=true": 1 + 5 + 10,
		"/clusters/x1/api/v1/namespaces/default/configmaps/a":                                1,
		"/clusters/x1/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name=a":    1,
		"/clusters/x1/apis/example.com/v1/widgets":                                           1 + 5 + 10,
		"/clusters/x1/apis/example.com/v1/namespaces/default/widgets/a":                      1,
		"/clusters/x1/api/v1/secrets":                                                        1,
		"/clusters/made-up/api/v1/configmaps":                                                1,
		"/clusters/x1/api":                                                                   1,
		"/clusters/*/api/v1/configmaps":                                                      1 + 500 + 1000,
	} {
		through(t, url, func(ctx context.Context, filter *routing.Filter) {
			info, _ := request.RequestInfoFrom(ctx)
			if got := cost(filter, usage)(ctx, flowcontrol.RequestDigest{RequestInfo: info}); got != want {
				t.Errorf("%s takes %d places, want %d", url, got, want)
			}
		})
	}
}
