package front

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

func TestAClientHasItsOwnPlaces(t *testing.T) {
	p := newInflight(Limits{Requests: 3, RequestsPerClient: 2, WatchesPerClient: 1})
	var leaves []func()
	for n, step := range []struct {
		client string
		watch  bool
		want   string
	}{
		{"a", false, ""}, {"a", false, ""}, {"a", false, limitRequestsPerClient},
		{"a", true, ""}, {"a", true, limitWatchesPerClient},
		{"b", false, ""}, {"b", false, limitRequests}, {"b", true, ""},
	} {
		leave, limit := p.enter(step.client, step.watch)
		if limit != step.want {
			t.Fatalf("step %d, of client %s: limit %q, want %q", n, step.client, limit, step.want)
		}
		if leave != nil {
			leaves = append(leaves, leave)
		}
	}
	if requests, watches := p.underWay(); requests != 3 || watches != 2 {
		t.Errorf("%d requests and %d watches are under way", requests, watches)
	}
	for _, leave := range leaves {
		leave()
	}
	if len(p.clients) != 0 || p.requests != 0 {
		t.Errorf("left: %v, %d", p.clients, p.requests)
	}
}

func TestManyClientsOfOneClusterLeavePlacesToOthers(t *testing.T) {
	p := newInflight(Limits{Requests: 12, RequestsPerClient: 1})
	var leaves []func()
	begin := func(n int, cluster string) (begun int) {
		for i := range n {
			leave, limit := p.enter(cluster+strconv.Itoa(i), false)
			if limit != "" {
				t.Fatalf("request %d for %s: limit %s", i, cluster, limit)
			}
			leaveCluster, ok := p.enterCluster(cluster)
			if !ok {
				leave()
				continue
			}
			begun++
			leaves = append(leaves, leave, leaveCluster)
		}
		return begun
	}
	for _, c := range []struct {
		cluster string
		want    int
	}{{"x1", 6}, {"x2", 3}, {"x3", 2}} {
		if got := begin(12, c.cluster); got != c.want {
			t.Errorf("%s has %d of 12 places, want %d", c.cluster, got, c.want)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if len(p.clusters) != 0 || p.requests != 0 {
		t.Errorf("left: %v, %d", p.clusters, p.requests)
	}
}

// However a cluster is spelt, it has one budget; and all that nobody knows have one for each client.
func TestAClusterHasOneBudgetHoweverItIsSpelt(t *testing.T) {
	e := newMembers(t).enter(DefaultLimits(), time.Minute, func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]string{
		"/clusters/c/api": "c", "/clusters/c": "c", "/clusters/root:c/api": "c", "/clusters/nope/api": unknownClusters + "ann", "/clusters/root:nope": unknownClusters + "ann",
		"/clusters/system:admin/api": "system:admin", "/clusters/*/api": "*", "/metrics": "", "/": "",
	} {
		if got := e.front.budgetOf(path, "ann"); got != want {
			t.Errorf("%s counts for %q, want %q", path, got, want)
		}
	}
}

func TestWithoutLimitsNobodyIsRefused(t *testing.T) {
	p := newInflight(Limits{})
	for range 10_000 {
		if _, limit := p.enter("a", false); limit != "" {
			t.Fatal(limit)
		}
	}
}

func TestAClientIsWhoTheCertificateNamesOrWhoShowsTheToken(t *testing.T) {
	with := func(address, token string) *http.Request {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		if req.RemoteAddr = address; token != "" {
			req.Header.Set("Authorization", token)
		}
		return req
	}
	alice := &user.DefaultInfo{Name: "alice"}
	one := clientOf(with("10.0.0.1:1", "Bearer x"), nil)
	for name, tc := range map[string]struct {
		req  *http.Request
		who  user.Info
		same bool
	}{
		"the same token from elsewhere": {with("10.0.0.2:2", "Bearer x"), nil, true},
		"another token from there":      {with("10.0.0.1:1", "Bearer y"), nil, false},
		"a certificate from there":      {with("10.0.0.1:1", "Bearer x"), alice, false},
		"neither":                       {with("10.0.0.1:1", ""), nil, false},
	} {
		if same := clientOf(tc.req, tc.who) == one; same != tc.same {
			t.Errorf("%s: the same client %t, want %t", name, same, tc.same)
		}
	}
	if a, b := clientOf(with("10.0.0.1:1", ""), alice), clientOf(with("10.0.0.2:2", "Bearer y"), alice); a != b {
		t.Errorf("alice is %q and %q", a, b)
	}
}
