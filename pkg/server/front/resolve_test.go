package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// resolving is a front, and shards root, eu1 and us1. Workspace a of root is on us1, in cluster real.
type resolving struct {
	*members
	front *Front
	// reads counts those of Workspaces.
	reads atomic.Int64
	// hasMoved: us1 says that cluster real has moved to eu1, which does not say yet that it has it.
	hasMoved atomic.Bool
}

func newResolving(t *testing.T) *resolving {
	t.Helper()
	r := &resolving{members: newMembers(t)}
	var err error
	if r.front, err = New(r.cfg); err != nil {
		t.Fatal(err)
	}
	r.front.hasList = true
	objects := map[string]string{
		"root/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/a": `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"a","uid":"u",
			"annotations":{"kcp.io/cluster":"root"},"labels":{"regent.dev/shard":"us1"}},"spec":{"cluster":"real"}}`,
		"us1/clusters/real/apis/core.kcp.io/v1alpha1/logicalclusters/cluster": `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster",
			"annotations":{"kcp.io/cluster":"real"}},"spec":{"owner":{"apiVersion":"tenancy.kcp.io/v1alpha1","resource":"workspaces","name":"a","cluster":"root","uid":"u"}}}`,
	}
	for _, name := range []string{"root", "eu1", "us1"} {
		server := r.serveAs(name, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if req.URL.Query().Get("watch") != "" {
				_ = http.NewResponseController(w).Flush()
				<-req.Context().Done()
				return
			}
			if strings.Contains(req.URL.Path, "/workspaces/") {
				r.reads.Add(1)
			}
			object, ok := objects[name+req.URL.Path]
			if r.hasMoved.Load() && name == "us1" {
				moved := clusters.MovedError{Cluster: "real", To: clusters.Move{Shard: "eu1", ID: "m"}}
				status := moved.Status()
				status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				w.WriteHeader(http.StatusMisdirectedRequest)
				_ = json.NewEncoder(w).Encode(status)
				return
			}
			if !ok {
				w.WriteHeader(http.StatusNotFound)
				object = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
			}
			_, _ = fmt.Fprint(w, object)
		})
		s, err := newShard(r.front.cfg, name, "", []string{server.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.replicas.close)
		for range watches {
			w, err := s.clients.Shards.Watch(clusters.With(t.Context(), clusters.Root), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				w.Stop()
				for range w.ResultChan() {
				}
			})
		}
		s.isFilled = true
		r.front.shards[name] = s
	}
	r.front.index.set("root", entry{shard: "root", path: "root"})
	return r
}

// A shard may say of its clusters that they are at any path. A Workspace that is there decides.
func TestAWorkspaceDecidesWhereItsPathLeads(t *testing.T) {
	for name, tc := range map[string]struct {
		path    string
		has     map[logicalcluster.Name]entry
		unheard string
		mayRead bool
		want    place
		reads   int64 // of two requests
	}{
		"the cluster of the Workspace":             {"root:a", map[logicalcluster.Name]entry{"real": {shard: "us1", path: "root:a"}}, "", true, place{"us1", "real"}, 1},
		"another shard claims its path":            {"root:a", map[logicalcluster.Name]entry{"claim": {shard: "eu1", path: "root:a"}}, "", true, place{"us1", "real"}, 2},
		"both":                                     {"root:a", map[logicalcluster.Name]entry{"real": {shard: "us1", path: "root:a"}, "claim": {shard: "eu1", path: "root:a"}}, "", true, place{"us1", "real"}, 2},
		"nothing is known":                         {"root:a", nil, "", true, place{"us1", "real"}, 2},
		"an orphan":                                {"root:o", map[logicalcluster.Name]entry{"orphan": {shard: "eu1", path: "root:o"}}, "", true, place{"eu1", "orphan"}, 2},
		"its parent's shard is not heard":          {"root:a", map[logicalcluster.Name]entry{"real": {shard: "us1", path: "root:a"}}, "root", true, place{"us1", "real"}, 0},
		"nothing may be read for whoever asks":     {"root:a", map[logicalcluster.Name]entry{"real": {shard: "us1", path: "root:a"}}, "", false, place{"us1", "real"}, 0},
		"a path below one that was not looked at":  {"root:a:b", map[logicalcluster.Name]entry{"real": {shard: "us1", path: "root:a"}, "below": {shard: "eu1", path: "root:a:b"}}, "", true, place{"eu1", "below"}, 3},
		"by name, whatever anybody says of a path": {"claim", map[logicalcluster.Name]entry{"claim": {shard: "eu1", path: "root:a"}}, "", true, place{"eu1", "claim"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResolving(t)
			for cluster, e := range tc.has {
				r.front.index.set(cluster, e)
			}
			if tc.unheard != "" {
				r.front.shards[tc.unheard].isFilled = false
			}
			for range 2 {
				if got, err := r.front.resolve(t.Context(), logicalcluster.NewPath(tc.path), tc.mayRead); got != tc.want || err != nil {
					t.Errorf("%v, %v; want %v", got, err, tc.want)
				}
			}
			if got := r.reads.Load(); got != tc.reads {
				t.Errorf("%d Workspaces were read, want %d", got, tc.reads)
			}
		})
	}
}

// Whoever may not enter a cluster learns no more than of one that does not exist: the same shard answers.
func TestOnlyMastersAreToldThatThereIsNoCluster(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann", Groups: []string{user.AllAuthenticated}}
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	for name, tc := range map[string]struct {
		url        string
		who        user.Info
		isAccepted bool
		shard      string // empty: 404
		path       string
	}{
		"a user, below root":            {"/clusters/root:none/api", ann, false, "root", "/clusters/root:none/api"},
		"a user, below another cluster": {"/clusters/root:a:none/api", ann, false, "us1", "/clusters/root:a:none/api"},
		"a user, by name":               {"/clusters/unknown/api", ann, false, "root", "/clusters/unknown/api"},
		"a token":                       {"/clusters/root:none/api", nil, true, "root", "/clusters/root:none/api"},
		"a token that nobody knows":     {"/clusters/unknown/api", nil, false, "root", "/clusters/unknown/api"},
		"an administrator":              {"/clusters/root:none/api", admin, false, "", ""},
		"an administrator, by name":     {"/clusters/unknown/api", admin, false, "", ""},
		"what is there":                 {"/clusters/root:a/api", ann, false, "us1", "/clusters/real/api"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResolving(t)
			r.front.index.set("real", entry{shard: "us1", path: "root:a"})
			to, path, err := r.front.target(httptest.NewRequest(http.MethodGet, tc.url, nil), tc.who, tc.isAccepted)
			switch {
			case tc.shard == "":
				if !apierrors.IsNotFound(err) {
					t.Errorf("%v, want 404", err)
				}
			case err != nil:
				t.Error(err)
			case to.name != tc.shard || path != tc.path:
				t.Errorf("%s is asked for %s, want %s for %s", to.name, path, tc.shard, tc.path)
			}
		})
	}
}

// A cluster has just moved: its Workspace names its former shard, which says where it is. The new one may not answer
// before it has arrived, and need not be asked.
func TestAClusterThatHasJustMovedIsFoundByWhatItsFormerShardSays(t *testing.T) {
	r := newResolving(t)
	r.hasMoved.Store(true)
	r.front.index.set("root", entry{shard: "root", path: "root"})
	r.front.index.set("real", entry{shard: "us1", path: "root:a"})
	us1, _ := r.front.shard("us1")
	next, err := r.front.next(t.Context(), us1, "/clusters/real/api/v1/configmaps")
	if err != nil || next.name != "eu1" {
		t.Fatalf("a request that us1 refuses goes to %v: %v", next, err)
	}
	at, err := r.front.resolve(t.Context(), logicalcluster.NewPath("root:a"), true)
	if err != nil || at != (place{"eu1", "real"}) {
		t.Errorf("it is at %v: %v", at, err)
	}
	if _, err := r.front.next(t.Context(), us1, "/clusters/root:a/api"); err == nil {
		t.Error("a path that names no cluster is followed")
	}
}
