package routing

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/net"
)

// client-go does not read the body of an answer to discovery: see k8s.io/client-go/discovery, which calls Raw.
func TestARefusalOfDiscoverySaysWhyInAWarning(t *testing.T) {
	f := newFilter(resolverOf{"root": "root"})
	for url, want := range map[string]string{
		"/clusters/root:gone/api":                          `logical cluster "root:gone" not found`,
		"/clusters/root:gone/api/v1":                       `logical cluster "root:gone" not found`,
		"/clusters/root:gone/apis":                         `logical cluster "root:gone" not found`,
		"/clusters/root:gone/apis/tenancy.kcp.io/v1alpha1": `logical cluster "root:gone" not found`,
		"/clusters/root:gone/openapi/v3/api/v1":            `logical cluster "root:gone" not found`,
		"/api":                                             errNoCluster.Error(),
		"/apis":                                            errNoCluster.Error(),
		"/clusters/Root/api":                               errBadCluster.Error(),
		"/clusters/root/api":                               "", // not refused
		// not discovery, which those below are not, either: their clients read the body
		"/clusters/root:gone":                                             "",
		"/clusters/root:gone/api/v1/namespaces":                           "",
		"/clusters/root:gone/apis/tenancy.kcp.io/v1alpha1/workspaces":     "",
		"/clusters/root:gone/apis/tenancy.kcp.io/v1alpha1/workspaces/api": "",
	} {
		got := serve(f, httptest.NewRequest(http.MethodGet, url, nil))
		warnings, errs := net.ParseWarningHeaders(got.header["Warning"])
		if len(errs) > 0 {
			t.Errorf("%s: clients cannot read the warning: %v", url, errs)
		}
		if want == "" && len(warnings) > 0 || want != "" && (len(warnings) != 1 || warnings[0].Code != 299 || warnings[0].Text != want) {
			t.Errorf("%s: status %d with warnings %+v, want %q", url, got.status, warnings, want)
		}
	}
}

func TestWhatClientsTryAgainIsExplainedToo(t *testing.T) {
	got := serve(newFilter(resolverOf{}), httptest.NewRequest(http.MethodGet, "/clusters/root/api", nil))
	if got.header.Get("Retry-After") == "" || got.header.Get("Warning") == "" {
		t.Errorf("header %v", got.header)
	}
}
