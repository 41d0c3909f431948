package server

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
)

const tokensOfUsers = "t-ann,ann,1\nt-forger,system:regent:leader,2\nt-member,mallory,3,\"system:regent:friends,system:masters\"\nt-root,rita,4,system:masters\n"

// A user without rights gets the same answer everywhere, down to the headers.
func TestWithoutRightsWhetherAClusterExistsCannotBeTold(t *testing.T) {
	r, events := startAudited(t)
	r.createCluster(t, "existing")
	before := r.reads(t)
	if got := r.ask(t, http.MethodGet, "/clusters/guess/api", "t-root"); got.status != http.StatusNotFound || r.reads(t) != before+1 {
		t.Fatalf("a master's guess: %d after %v reads, want 404 after one: reads are not counted", got.status, r.reads(t)-before)
	}
	asked := []string{
		"/clusters/existing/api/v1/namespaces", "/clusters/nowhere/api/v1/namespaces", "/clusters/root/api/v1/namespaces",
		"/clusters/root:a:b/api/v1/namespaces", "/clusters/system:admin/api/v1/namespaces",
	}
	for _, c := range []struct {
		who, bearer string
		status      int
	}{{"ann", "t-ann", http.StatusForbidden}, {"nobody", "", http.StatusUnauthorized}} {
		before := r.reads(t)
		first := r.ask(t, http.MethodGet, asked[0], c.bearer)
		if first.status != c.status {
			t.Fatalf("%s: %d, want %d", c.who, first.status, c.status)
		}
		for _, url := range asked[1:] {
			if other := r.ask(t, http.MethodGet, url, c.bearer); !other.equal(first) {
				t.Errorf("%s is told %+v of %s, and %+v of %s", c.who, other, url, first, asked[0])
			}
		}
		const guesses = 300
		began := time.Now()
		for i := range guesses {
			r.ask(t, http.MethodGet, "/clusters/guess"+strconv.Itoa(i)+":x/api", c.bearer)
		}
		// Of a user's guesses some are looked up, because a cluster may be new: a hundred, and fifty a second.
		// Strangers are none of storage's business.
		if reads := r.reads(t) - before; reads > 110+50*time.Since(began).Seconds() || c.status == http.StatusUnauthorized && reads > 0 {
			t.Errorf("%s had storage read %v times", c.who, reads)
		}
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	denied := 0
	for _, e := range events() {
		if e.Stage == auditv1.StageResponseComplete && e.User.Username == "ann" && strings.HasPrefix(e.Annotations[routing.AuditPath], "existing") {
			denied++
			if e.Annotations[routing.AuditCluster] != "existing" {
				t.Errorf("a denied request's event does not name its cluster: %v", e.Annotations)
			}
		}
	}
	if denied == 0 {
		t.Error("no event of a denied request")
	}
}

func TestEveryRefusalIsAudited(t *testing.T) {
	r, events := startAudited(t)
	want := map[string]int32{}
	for _, c := range []struct {
		method, url, bearer string
		status              int32
	}{
		{"GET", "/clusters/Bad-Name/api/v1/bad", "t-root", 400},
		{"GET", "/clusters/root/api/v1/unauthenticated", "", 401},
		{"GET", "/clusters/nowhere/api/v1/unknown", "t-root", 404},
		{"GET", "/api/v1/without-cluster", "t-root", 404},
		{"POST", "/clusters/*/api/v1/wildcard", "t-root", 405},
		{"GET", "/clusters/root/api/v1/forbidden", "t-ann", 403},
	} {
		if got := r.ask(t, c.method, c.url, c.bearer); got.status != int(c.status) {
			t.Errorf("%s %s: %d, want %d", c.method, c.url, got.status, c.status)
		}
		want[c.url[strings.LastIndexByte(c.url, '/')+1:]] = c.status
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{}
	for _, e := range events() {
		// of a request that was not authenticated there is no stage ResponseComplete
		if e.ResponseStatus != nil {
			got[e.RequestURI[strings.LastIndexByte(e.RequestURI, '/')+1:]] = e.ResponseStatus.Code
		}
	}
	for url, status := range want {
		if got[url] != status {
			t.Errorf("%s was answered with %d; the audit log has %d", url, status, got[url])
		}
	}
}

func TestOnlyThisProcessHasItsUsers(t *testing.T) {
	r, _ := startAudited(t)
	defer func() { _ = r.stop(t) }()
	const url = "/clusters/system:admin/api/v1/namespaces"
	for bearer, want := range map[string]int{"t-forger": 401, "t-member": 401, "t-root": 200, r.server.identity.InProcess.Leader: 200} {
		if got := r.ask(t, http.MethodGet, url, bearer); got.status != want {
			t.Errorf("%s: %d, want %d", bearer, got.status, want)
		}
	}
	for header, value := range map[string]string{"Impersonate-User": identity.ReplicaUser, "Impersonate-Group": "system:regent:friends"} {
		for _, groups := range [][]string{nil, {user.SystemPrivilegedGroup}} {
			h := http.Header{"Impersonate-User": {"somebody"}, "Impersonate-Group": groups}
			if header == "Impersonate-User" {
				h[header] = []string{value}
			} else {
				h[header] = append(h[header], value)
			}
			if got := r.askWith(t, http.MethodGet, url, "t-root", h); got.status != http.StatusForbidden || !strings.Contains(got.body, identity.ReservedPrefix) {
				t.Errorf("impersonation with %v: %d %s, want 403 and why", h, got.status, got.body)
			}
		}
	}
	h := http.Header{"Impersonate-User": {"somebody"}, "Impersonate-Group": {user.SystemPrivilegedGroup}}
	if got := r.askWith(t, http.MethodGet, url, "t-root", h); got.status != http.StatusOK {
		t.Errorf("impersonation of another master: %d %s", got.status, got.body)
	}
}

// startAudited starts a replica that knows users by tokens and audits everything; events returns what it has audited.
func startAudited(t *testing.T) (r *replica, events func() []auditv1.Event) {
	t.Helper()
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers)
	cfg.Audit.PolicyFile = write(t, filepath.Join(root, "policy.yaml"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	cfg.Audit.LogOptions.Path = filepath.Join(root, "audit.log")
	return startReplica(t, cfg), func() []auditv1.Event { return eventsOf(t, cfg.Audit.LogOptions.Path) }
}

// eventsOf returns what an audit log has.
func eventsOf(t *testing.T, log string) (all []auditv1.Event) {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(content)); decoder.More(); {
		var event auditv1.Event
		if err := decoder.Decode(&event); err != nil {
			t.Fatal(err)
		}
		all = append(all, event)
	}
	return all
}

func write(t testing.TB, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// answer is what a request got. What is different in any two answers is left out.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) equal(b answer) bool {
	return a.status == b.status && a.body == b.body && maps.EqualFunc(a.header, b.header, func(x, y []string) bool {
		return strings.Join(x, ",") == strings.Join(y, ",")
	})
}

func (r *replica) ask(t testing.TB, method, path, bearer string) answer {
	t.Helper()
	return r.askWith(t, method, path, bearer, http.Header{})
}

func (r *replica) askWith(t testing.TB, method, path, bearer string, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return r.do(t, req)
}

func (r *replica) do(t testing.TB, req *http.Request) answer {
	t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, changing := range []string{"Audit-Id", "Date"} {
		resp.Header.Del(changing)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// createCluster makes a logical cluster, as the leader does, and waits until the replica's caches know it.
func (r *replica) createCluster(t testing.TB, name string) {
	t.Helper()
	object := `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster"}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/clusters/"+name+"/apis/core.kcp.io/v1alpha1/logicalclusters", strings.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.server.identity.InProcess.Leader)
	req.Header.Set("Content-Type", "application/json")
	if got := r.do(t, req); got.status != http.StatusCreated {
		t.Fatalf("cannot make logical cluster %s: %d %s", name, got.status, got.body)
	}
	// A master's request reads from storage what the caches do not know.
	until(t, "logical cluster "+name+" is in the caches", func() bool {
		before := r.reads(t)
		r.ask(t, http.MethodGet, "/clusters/"+name+"/api", "t-root")
		return r.reads(t) == before
	})
}

var readsOfClusters = regexp.MustCompile(`(?m)^etcd_requests_total\{[^}]*operation="get"[^}]*resource="(?:logicalclusters|workspaces)[^}]*\} (\S+)$`)

// reads is how often single workspaces and logical clusters were read from etcd.
func (r *replica) reads(t testing.TB) (sum float64) {
	t.Helper()
	raw, err := r.admin(t).Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range readsOfClusters.FindAllSubmatch(raw, -1) {
		n, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
