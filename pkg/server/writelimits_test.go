package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A user rewrites objects as fast as they can, in one cluster and then in another. They are told to wait, and so is
// everybody who writes in the cluster that is full. All others write on, and what makes room is never refused.
func TestWhoWritesTooMuchIsToldToWaitAndOthersAreNot(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-ann,ann,1\nt-ben,ben,2\nt-root,rita,3,system:masters\n")
	cfg.Limits.HistoryBytes = 8 << 20
	r := startReplica(t, cfg, func(s *Server) {
		s.generic.Authorization.Authorizer = &letting{Authorizer: s.generic.Authorization.Authorizer, holds: func(authorizer.Attributes) bool { return false }}
	})
	for _, cluster := range []string{"filled", "next", "quiet"} {
		r.createCluster(t, cluster)
		r.send(t, http.MethodPatch, cluster, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status", `{"status":{"phase":"Ready"}}`)
	}
	const configmaps = "/api/v1/namespaces/default/configmaps"
	content := strings.Repeat("x", 100_000)
	post := func(bearer, cluster, name string) answer {
		return r.post(t, cluster, configmaps, bearer, fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["example.com/kept"]},"data":{"a":%q}}`, name, content))
	}
	name := func(n int) string { return fmt.Sprint("a", n) }
	created, last := 0, answer{}
	for ; created < 200; created++ {
		if last = post("t-ann", "filled", name(created)); last.status != http.StatusCreated {
			break
		}
	}
	if last.status != http.StatusTooManyRequests || last.header.Get("Retry-After") == "" || !strings.Contains(last.body, "write less, or less often") {
		t.Fatalf("after %d writes of 100 kB: %d, Retry-After %q, %.300s", created, last.status, last.header.Get("Retry-After"), last.body)
	}
	if created < 35 || created > 60 { // half of 8 MiB, and what the watch has not told yet
		t.Errorf("%d writes of 100 kB passed, of 8 MiB", created)
	}
	update := fmt.Sprintf(`{"data":{"b":%q}}`, content)
	patch := func(bearer, cluster, name, patch string) int {
		return r.write(t, http.MethodPatch, "/clusters/"+cluster+configmaps+"/"+name, bearer, "application/merge-patch+json", patch).status
	}
	if got := post("t-ben", "quiet", "a"); got.status != http.StatusCreated {
		t.Errorf("another user in another cluster: %d %s", got.status, got.body)
	}
	until(t, "the filled cluster is known as such", func() bool { return patch("t-ben", "filled", "a0", update) == http.StatusTooManyRequests })
	if got := post("t-ann", "next", "a"); got.status != http.StatusTooManyRequests {
		t.Errorf("the same user in another cluster: %d %s", got.status, got.body)
	}
	if got := post("t-root", "filled", "admins"); got.status != http.StatusCreated {
		t.Errorf("an administrator: %d %s", got.status, got.body)
	}
	if got := r.ask(t, http.MethodDelete, "/clusters/filled"+configmaps+"/a0", "t-ann"); got.status != http.StatusOK {
		t.Errorf("a deletion that waits for finalizers: %d %s", got.status, got.body)
	}
	if got := patch("t-ann", "filled", "a0", update); got != http.StatusTooManyRequests {
		t.Errorf("an update of what is being deleted: %d", got)
	}
	if got := patch("t-ann", "filled", "a0", `{"metadata":{"finalizers":null}}`); got != http.StatusOK {
		t.Errorf("the last finalizer is taken away: %d", got)
	}
	if got := r.ask(t, http.MethodGet, "/clusters/filled"+configmaps+"/a0", "t-ann"); got.status != http.StatusNotFound {
		t.Errorf("what was deleted: %d", got.status)
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
