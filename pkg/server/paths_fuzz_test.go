package server

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/identity"
)

// treasure is what cluster "other" holds. Nobody but its users may be shown it.
const treasure = "treasure-of-another-cluster"

// FuzzNobodyIsAnsweredOutsideOfTheirCluster has a user with rights in cluster "own" ask for anything: no answer is 2xx
// that is not about that cluster or public, and none shows what another cluster holds. It asks the whole server, over
// what net/http makes of a request as a client has written it.
func FuzzNobodyIsAnsweredOutsideOfTheirCluster(f *testing.F) {
	for _, target := range seedTargets() {
		for method := range uint8(len(fuzzedMethods)) {
			if method > 0 && !strings.Contains(target, "configmaps") {
				continue
			}
			f.Add(method, target, "Accept: application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)
		}
	}
	for _, header := range []string{
		"Impersonate-User: eve\r\nImpersonate-Group: system:masters", "Impersonate-User: system:regent:leader", "X-Remote-User: admin\r\nX-Remote-Group: system:masters",
		"Authorization: Bearer t-root", "Connection: Upgrade\r\nUpgrade: websocket", "X-HTTP-Method-Override: DELETE", "Accept: application/json;as=Table;g=meta.k8s.io;v=v1",
		"Impersonate-User: system:serviceaccount:default:default\r\nImpersonate-Extra-authentication.kcp.io%2fcluster-name: other",
	} {
		f.Add(uint8(0), "/clusters/other/api/v1/namespaces/default/configmaps/treasure", header, "")
		f.Add(uint8(0), "/clusters/*/api/v1/configmaps", header, "")
	}
	r := startWithNeighbours(f)
	f.Fuzz(func(t *testing.T, method uint8, target, header, body string) {
		t.Parallel() // watches are waited for
		raw := fuzzedMethods[int(method)%len(fuzzedMethods)] + " " + target + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t-eve\r\n" + header + "\r\n\r\n"
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil || knowsAPassword(req.Header) {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // watches have no end
		defer cancel()
		asked := *req.URL
		req = req.WithContext(ctx)
		req.RequestURI, req.Body, req.ContentLength = "", io.NopCloser(strings.NewReader(body)), int64(len(body))
		if req.Header.Get("Content-Type") == "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := r.server.api.RoundTrip(req)
		if err != nil {
			return // the time was up
		}
		defer func() { _ = resp.Body.Close() }()
		answer, _ := io.ReadAll(resp.Body)
		if strings.Contains(string(answer), treasure) {
			t.Fatalf("%q is shown what another cluster holds: %d %s", raw, resp.StatusCode, answer)
		}
		if resp.StatusCode < http.StatusMultipleChoices && !isOwnOrPublic(&asked) {
			t.Fatalf("%q is answered with %d: %.500s", raw, resp.StatusCode, answer)
		}
	})
}

var fuzzedMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}

// knowsAPassword reports whether the fuzzer has found another user's token: that is no hole in the server.
func knowsAPassword(header http.Header) bool {
	return slices.ContainsFunc(header.Values("Authorization"), func(value string) bool { return !strings.Contains(value, "t-eve") })
}

// isOwnOrPublic judges a URL as simply as can be: its decoded path begins with the cluster that the user has rights in,
// or is a public one.
func isOwnOrPublic(u *url.URL) bool {
	path := u.Path
	if path == "/clusters/own" || strings.HasPrefix(path, "/clusters/own/") {
		return true
	}
	// probes are answered whatever cluster is before them
	if after, ok := strings.CutPrefix(path, "/clusters/"); ok {
		_, path, _ = strings.Cut(after, "/")
		path = "/" + path
	}
	return slices.Contains(identity.PublicPaths, path)
}

// seedTargets are request targets by which others have got out of where they were.
func seedTargets() (out []string) {
	const object = "/api/v1/namespaces/default/configmaps/treasure"
	for _, prefix := range []string{
		"/clusters/own", "/clusters/other", "/clusters/%6fther", "//clusters/other", "/clusters//other", "/clusters/own/../other", "/clusters/own/%2e%2e/other", "/clusters/own%2f..%2fother",
		"/clusters/own/clusters/other", "/clusters/*", "/clusters/%2a", "/clusters/system:admin", "/clusters/root", "/clusters/root:other", "/clusters/own:other", "/clusters/other:own",
		"/clusters/own%00other", "/CLUSTERS/other", "/clusters/other;own", "/clusters/own,other", "", "/shards/root/clusters/other", "/services/own/clusters/other", "/livez/../clusters/other",
		"https://localhost/clusters/other", "http://own/clusters/other", "/clusters/own/livez/../../other", "/clusters/other%20", "/clusters/own/api/../../other",
	} {
		for _, rest := range []string{
			object, "/api/v1/configmaps", "/api/v1/configmaps?watch=true", "/api/v1/namespaces/default/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9vdGhlci8ifQ",
			"/api/v1/namespaces/default/configmaps?resourceVersion=1&resourceVersionMatch=Exact", "/api", "/apis", "/openapi/v2", "/openapi/v3", "/version", "/livez", "/metrics", "/debug/pprof/",
			"/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "/apis/tenancy.kcp.io/v1alpha1/workspaces", "/election/step-down", "/api/v1/namespaces/..%2f..%2fother/configmaps",
			"/api/v1/watch/configmaps", "/api/v1/namespaces/default/configmaps/treasure/status", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		} {
			out = append(out, prefix+rest)
		}
	}
	return out
}

// startWithNeighbours starts a replica with the clusters "own", in which eve has rights, and "other", in which eve
// has none.
func startWithNeighbours(t testing.TB) *replica {
	t.Helper()
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-eve,eve,1\nt-root,rita,4,system:masters\n")
	cfg.Limits = edge.Limits{}
	r := startReplica(t, cfg)
	t.Cleanup(func() {
		if err := r.stop(t); err != nil {
			t.Error(err)
		}
	})
	for _, cluster := range []string{"own", "other"} {
		r.createCluster(t, cluster)
		r.send(t, http.MethodPatch, cluster, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status", `{"status":{"phase":"Ready"}}`)
	}
	r.send(t, http.MethodPost, "other", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"treasure"},"data":{"a":"`+treasure+`"}}`)
	const group = `"apiGroup":"rbac.authorization.k8s.io"`
	// The user may impersonate and make tokens, but not end their cluster or their rights in it: what comes after
	// would test nothing.
	r.send(t, http.MethodPost, "own", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"eve"},"rules":[
		{"verbs":["access","get"],"nonResourceURLs":["*"]}, {"verbs":["get","list","watch","create","impersonate"],"apiGroups":["*"],"resources":["*"]},
		{"verbs":["*"],"apiGroups":[""],"resources":["configmaps","secrets"]}]}`)
	r.send(t, http.MethodPost, "own", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"eve"},"roleRef":{`+group+`,"kind":"ClusterRole","name":"eve"},"subjects":[{`+group+`,"kind":"User","name":"eve"}]}`)
	until(t, "the user has rights in their own cluster", func() bool {
		return r.ask(t, http.MethodGet, "/clusters/own/api/v1/configmaps", "t-eve").status == http.StatusOK
	})
	return r
}

// send has the leader write.
func (r *replica) send(t testing.TB, method, cluster, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+"/clusters/"+cluster+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.server.identity.InProcess.Leader)
	req.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == http.MethodPatch])
	if got := r.do(t, req); got.status >= http.StatusMultipleChoices {
		t.Fatalf("%s %s in %s: %d %s", method, path, cluster, got.status, got.body)
	}
}
