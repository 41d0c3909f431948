package routing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
)

// half knows "cached" without reading, and "stored" and "root" by reading. It counts the reads.
type half struct{ reads int }

func (h *half) Resolve(_ context.Context, path logicalcluster.Path, mayRead func() error) (logicalcluster.Name, error) {
	if path.String() == "cached" {
		return "cached", nil
	}
	if err := mayRead(); err != nil {
		return "", readError(path, err)
	}
	h.reads++
	if path.String() == "stored" {
		return "stored", nil
	}
	return "", notFound(path)
}

// rights are of two users: the master may do everything, the tenant everything in the clusters "cached" and "stored".
// asked is the cluster in which the authorizer was asked last.
type rights struct {
	authorizer.Authorizer
	asked logicalcluster.Name
}

func (r *rights) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.asked, _ = clusters.From(ctx)
	if a.GetUser().GetName() == "master" || a.GetUser().GetName() == "tenant" && r.asked != "" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// through sends a request of a user through the three places of the filter, and returns its status, 403 without rights,
// and the annotations of its audit event.
func through(f *Filter, rights authorizer.Authorizer, who, url string) (status int, annotations map[string]string) {
	var ctx context.Context
	authorize := f.Authorizer(rights)
	admit := f.Admit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	recorder := httptest.NewRecorder()
	f.Parse(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx = req.Context()
		decision, _, _ := authorize.Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: "get", Path: req.URL.Path})
		if decision != authorizer.DecisionAllow {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		admit.ServeHTTP(w, req)
	})).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, url, nil).WithContext(audit.WithAuditContext(context.Background())))
	return recorder.Code, audit.AuditContextFrom(ctx).GetEventAnnotations()
}

func TestWhoHasNoRightsLearnsNothingAndReadsNothing(t *testing.T) {
	h := &half{}
	f := newFilter(h)
	for _, url := range []string{
		"/clusters/cached/api", "/clusters/stored/api", "/clusters/nowhere/api", "/clusters/a:b:c/api",
		"/clusters/Not-A-Cluster/api", "/api/v1/namespaces", "/clusters/*/api/v1/namespaces/default",
	} {
		if status, _ := through(f, &rights{}, "stranger", url); status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403 as everywhere", url, status)
		}
	}
	if h.reads > 0 {
		t.Errorf("%d reads of storage for somebody without rights", h.reads)
	}
}

// A user's first request for a new cluster may come to a replica that does not know it yet.
func TestStorageIsReadForUsersAFewTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &half{}
		f := newFilter(h)
		authorize := f.Authorizer(&rights{})
		ask := func(who, url string) authorizer.Decision {
			decision := authorizer.DecisionDeny
			f.Parse(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				who := &user.DefaultInfo{Name: who, Groups: []string{user.AllAuthenticated}}
				decision, _, _ = authorize.Authorize(req.Context(), authorizer.AttributesRecord{User: who})
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, nil))
			return decision
		}
		if ask("tenant", "/clusters/stored/api") != authorizer.DecisionAllow {
			t.Error("a new cluster's user is refused")
		}
		h.reads = 0
		for range 10 * lookupsAtOnce {
			ask("guesser", "/clusters/nowhere/api")
		}
		if h.reads != lookupsAtOnce {
			t.Errorf("%d reads for a user who guesses, want %d", h.reads, lookupsAtOnce)
		}
		if ask("tenant", "/clusters/stored/api") != authorizer.DecisionAllow {
			t.Error("another user is refused meanwhile")
		}
		time.Sleep(time.Second)
		h.reads = 0
		for range 10 * lookupsAtOnce {
			ask("guesser", "/clusters/nowhere/api")
		}
		if h.reads != lookupsPerSecond {
			t.Errorf("%d reads a second later, want %d", h.reads, lookupsPerSecond)
		}
	})
}

func TestEndpointsOfTheProcessAreOfTheShardAsAWhole(t *testing.T) {
	r := &rights{}
	through(newFilter(&half{}), r, "tenant", "/metrics")
	if r.asked != clusters.Wildcard {
		t.Errorf("authorized in %q", r.asked)
	}
}

func TestRightsAreAskedInTheClusterThatThePathLeadsTo(t *testing.T) {
	for _, c := range []struct {
		who, url string
		status   int
		asked    logicalcluster.Name
		reads    int
	}{
		{"tenant", "/clusters/cached/api", 200, "cached", 0},
		{"tenant", "/clusters/nowhere/api", 403, "", 0},
		{"master", "/clusters/cached/api", 200, "cached", 0},
		{"master", "/clusters/stored/api", 200, "stored", 1},
		{"master", "/clusters/nowhere/api", 404, "", 1},
		{"master", "/clusters/Not-A-Cluster/api", 400, "", 0},
		{"master", "/clusters/*/apis", 200, clusters.Wildcard, 0},
	} {
		h, r := &half{}, &rights{}
		status, _ := through(newFilter(h), r, c.who, c.url)
		if status != c.status || r.asked != c.asked || h.reads != c.reads {
			t.Errorf("%s %s: %d after %d reads, authorized in %q; want %d, %d, %q", c.who, c.url, status, h.reads, r.asked, c.status, c.reads, c.asked)
		}
	}
}

func TestAuditKnowsTheClusterOfWhatIsDenied(t *testing.T) {
	for url, want := range map[string]map[string]string{
		"/clusters/cached/api":  {AuditPath: "cached", AuditCluster: "cached"},
		"/clusters/nowhere/api": {AuditPath: "nowhere"},
		"/clusters/*/apis":      {AuditPath: "*", AuditCluster: "*"},
	} {
		status, got := through(newFilter(&half{}), &rights{}, "stranger", url)
		if status == http.StatusOK && url != "/clusters/*/apis" {
			t.Errorf("%s: let in", url)
		}
		for _, key := range []string{AuditPath, AuditCluster} {
			if got[key] != want[key] {
				t.Errorf("%s: annotation %s is %q, want %q", url, key, got[key], want[key])
			}
		}
	}
}

// A cluster is looked up once, however often the authorizer is asked: impersonation asks it several times.
func TestAClusterIsLookedUpOnce(t *testing.T) {
	h := &half{}
	f := newFilter(h)
	authorize := f.Authorizer(&rights{})
	f.Parse(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		for range 3 {
			if _, _, err := authorize.Authorize(req.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "master"}}); err != nil {
				t.Error(err)
			}
		}
		f.Admit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), req)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/clusters/stored/api", nil))
	if h.reads != 1 {
		t.Errorf("%d reads, want 1", h.reads)
	}
}
