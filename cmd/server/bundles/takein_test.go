package bundles

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// parents take workspaces in, and remember what they were asked: path, verb, and what was in the body.
type parents struct {
	mu     sync.Mutex
	asked  []string
	refuse string // the verb that is refused with 400
}

func (p *parents) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in, ok := strings.CutSuffix(strings.TrimPrefix(req.URL.Path, "/clusters/"), bundle.ComingPath)
	if !ok {
		http.NotFound(w, req)
		return
	}
	what, freeze := req.Method, req.URL.Query().Get("freeze")
	if req.Method == http.MethodPost && freeze != "" {
		what = "settle"
	}
	body, _ := io.ReadAll(req.Body)
	var keys []string
	if req.Method == http.MethodPut {
		for line := range strings.Lines(string(body)) {
			var o bundle.Object
			_ = json.Unmarshal([]byte(line), &o)
			keys = append(keys, fmt.Sprintf("%s deleted=%t", o.Key, o.Deleted))
		}
		slices.Sort(keys)
	} else if len(body) > 0 {
		var c bundle.Coming
		_ = json.Unmarshal(body, &c)
		keys = append(keys, fmt.Sprintf("Workspace given: %t", len(c.Workspace) > 0))
	}
	p.asked = append(p.asked, strings.TrimSpace(fmt.Sprint(in, " ", what, " ", freeze, " ", strings.Join(keys, ", "))))
	if what == p.refuse {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused","reason":"BadRequest","code":400}`)
		return
	}
	_ = json.NewEncoder(w).Encode(bundle.Frozen{Freeze: "f", Seconds: 10})
}

func bundleOf(t *testing.T, path string, objects map[string]string) *bundle.Bundle {
	t.Helper()
	if objects[bundle.LogicalClusterKey] == "" {
		objects[bundle.LogicalClusterKey] = `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1"}`
	}
	b := bundleWith(t, objects)
	b.Path, b.Cluster = path, strings.ReplaceAll(path, ":", "-")
	return b
}

// Each workspace is taken in by itself, parents first, and what cannot come is told.
func TestWorkspacesAreTakenInOneByOne(t *testing.T) {
	p := &parents{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	all := []*bundle.Bundle{
		bundleOf(t, "root:team", map[string]string{
			inApp + "owned": configMap("owned", "2", "x", ownedBy("1")), inApp + "owner": configMap("owner", "1", "x"), inApp + "gone": "deleted",
			bundle.WorkspaceKeys + "w": workspace, bundle.WorkspaceKeys + "other": workspace, "coordination.k8s.io/leases/app/l": `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}`,
		}),
		bundleOf(t, "root:team:w", map[string]string{inApp + "b": configMap("b", "3", "x")}),
	}
	got, err := ImportExactly(t.Context(), clientOf(server), all, ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"root POST  Workspace given: false",
		"root PUT f " + inApp + "gone deleted=true, " + inApp + "owner deleted=false",
		"root PUT f " + inApp + "owned deleted=false",
		"root settle f Workspace given: false",
		"root:team POST  Workspace given: true",
		"root:team PUT f " + inApp + "b deleted=false",
		"root:team settle f Workspace given: true",
	}
	if !reflect.DeepEqual(p.asked, want) {
		t.Errorf("asked:\n%s\nwant:\n%s", strings.Join(p.asked, "\n"), strings.Join(want, "\n"))
	}
	slices.SortFunc(got.Left, func(a, b Leftover) int { return strings.Compare(a.Resource, b.Resource) })
	if left := []Leftover{
		{"leases.coordination.k8s.io", 1, "they do not come back: they say who leads now, and no term comes back"},
		{"workspaces.tenancy.kcp.io", 1, "the file has no bundle of what is in them: export with --recursive"},
	}; got.Created != 3 || !reflect.DeepEqual(got.Left, left) {
		t.Errorf("%+v", got)
	}
}

func TestAWorkspaceThatCannotBeTakenInIsRemovedAtOnce(t *testing.T) {
	for refused, want := range map[string][]string{
		http.MethodPost: {"root POST  Workspace given: false"},
		http.MethodPut:  {"root POST  Workspace given: false", "root PUT f " + inApp + "a deleted=false", "root DELETE f"},
		"settle":        {"root POST  Workspace given: false", "root PUT f " + inApp + "a deleted=false", "root settle f Workspace given: false", "root DELETE f"},
	} {
		p := &parents{refuse: refused}
		server := httptest.NewServer(p)
		got, err := ImportExactly(t.Context(), clientOf(server), []*bundle.Bundle{bundleOf(t, "root:team", map[string]string{inApp + "a": configMap("a", "1", "x")})}, ImportOptions{})
		server.Close()
		if err == nil || got.Created != 0 || !strings.Contains(err.Error(), "root:team") {
			t.Errorf("%s: %+v, %v", refused, got, err)
		}
		if !reflect.DeepEqual(p.asked, want) {
			t.Errorf("%s is refused: asked %q, want %q", refused, p.asked, want)
		}
	}
}

func TestWhatIsNoWorkspaceOfAnotherOneIsNotTakenIn(t *testing.T) {
	p := &parents{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	lacks := bundleWith(t, map[string]string{inApp + "a": configMap("a", "1", "x")})
	for _, b := range []*bundle.Bundle{bundleOf(t, "root", map[string]string{}), lacks} {
		if _, err := ImportExactly(t.Context(), clientOf(server), []*bundle.Bundle{b}, ImportOptions{}); err == nil || len(p.asked) > 0 {
			t.Errorf("%s: %v, asked %q", b.Path, err, p.asked)
		}
	}
}
