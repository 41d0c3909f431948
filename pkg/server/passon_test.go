package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/endpoints"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
)

// stepDownAt posts to a path of a replica, as the administrator or as who the headers name.
func stepDownAt(t *testing.T, r *replica, client *http.Client, query, body string, headers ...string) (int, string) {
	t.Helper()
	code, _, answer := browse(t, client, http.MethodPost, r.url+routing.StepDownPath+query, body, headers...)
	return code, answer
}

// mayStepDown lets subjects have the leader step down.
func mayStepDown(t *testing.T, r *replica, who ...rbacv1.Subject) {
	t.Helper()
	admin := r.adminIn(t, clusters.SystemAdmin).RbacV1()
	if _, err := admin.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "steps"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"post"}, NonResourceURLs: []string{routing.StepDownPath}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "steps"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "steps"}, Subjects: who}
	if _, err := admin.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func adminOf(t *testing.T, r *replica) *http.Client {
	t.Helper()
	admin, err := rest.HTTPClientFor(r.adminConfig(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// Whoever may have the leader step down may ask any replica. It is the user whose rights count, at both ends.
func TestAnyReplicaHasTheLeaderOfItsShardStepDown(t *testing.T) {
	leader, standby := startTwo(t, untilDone)
	admin := adminOf(t, standby)
	const here = "?shard=root"
	ann := []string{"Impersonate-User", "ann"}
	stale, err := fence.Token{Cluster: clusters.SystemAdmin, Namespace: "kube-system", Name: "regent-controllers", UID: "u", Holder: "h", Epoch: 1}.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, query, body string
		client            *http.Client
		headers           []string
		code              int
		says              string
	}{
		{"the replica alone", "", "", admin, nil, http.StatusConflict, "ask with ?shard=root"},
		{"another shard", "?shard=eu1", "", admin, nil, http.StatusNotFound, "shards cannot act on each other"},
		{"by a stranger", here, "", standby.client, nil, http.StatusUnauthorized, ""},
		{"by a user without the right", here, "", admin, ann, http.StatusForbidden, "ann"},
		{"by a stranger who names somebody else", here, "", standby.client, []string{clusters.RemoteUserHeader, "admin", clusters.RemoteGroupHeader, "system:masters"}, http.StatusUnauthorized, ""},
		{"of a term that is over", here + "&epoch=7", "", admin, nil, http.StatusConflict, "leads in epoch 1"},
		{"of no term", here + "&epoch=one", "", admin, nil, http.StatusBadRequest, "is no number"},
		{"in favour of nobody that is there", here, `{"to":"nobody"}`, admin, nil, http.StatusNotFound, "replica " + leader.server.name + " leads on"},
		{"in favour of who leads already", here, fmt.Sprintf(`{"to":%q}`, leader.server.name), admin, nil, http.StatusOK, `"goesOn":true`},
		{"with the token of a term that is over", here, "", admin, []string{fence.Header, stale}, http.StatusPreconditionFailed, ""},
		{"with what is no request", here, "now", admin, nil, http.StatusBadRequest, "must be empty"},
	} {
		if code, answer := stepDownAt(t, standby, c.client, c.query, c.body, c.headers...); code != c.code || !strings.Contains(answer, c.says) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, code, answer, c.code, c.says)
		}
	}
	if e := ask[status.Replica](t, leader, status.ReplicaPath).Election; e.State != "leading" || e.Epoch != 1 {
		t.Fatalf("after all that the leader's election is %+v", e)
	}

	accounts := leader.adminIn(t, clusters.SystemAdmin).CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "night"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), "night", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mayStepDown(t, leader, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "ann"}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "night"})
	from, to, by := leader, standby, "ann"
	for epoch, who := range []struct {
		client  *http.Client
		headers []string
	}{{admin, ann}, {standby.client, []string{"Authorization", "Bearer " + token.Status.Token}}} {
		untilAnswered(t, to, status.ReplicaPath, "the other one follows", func(r status.Replica) bool { return r.Election.Contact != nil && r.Election.Contact.State == "alive" })
		var code int
		var answer string
		until(t, by+" may", func() bool {
			code, answer = stepDownAt(t, to, who.client, fmt.Sprintf("%s&epoch=%d", here, epoch+1), fmt.Sprintf(`{"reason":"to see it","to":%q}`, to.server.name), who.headers...)
			// the two replicas learn of the binding one after the other
			return code != http.StatusForbidden && code != http.StatusServiceUnavailable
		})
		var term endpoints.StepDownResponse
		if err := json.Unmarshal([]byte(answer), &term); err != nil || code != http.StatusOK || term.Replica != from.server.name || term.Epoch != int64(epoch+1) {
			t.Fatalf("by %s: %d %s", by, code, answer)
		}
		got := untilAnswered(t, from, status.ReplicaPath, "it follows now", func(r status.Replica) bool { return r.Election.Epoch == int64(epoch+2) })
		if e := got.Election; e.Leader != to.server.name || !strings.Contains(e.LastStepDown, by) || !strings.Contains(e.LastStepDown, "to see it") {
			t.Errorf("after it was asked by %s: %+v", by, e)
		}
		from, to, by = to, from, "system:serviceaccount:default:night"
	}
}

// A replica may say for whom it asks its leader to step down, and nothing else. It has no right of its own.
func TestReplicasOfAShardPassOnStepDownsOnly(t *testing.T) {
	i := install(t)
	root, own := i.shards["root"].at, i.callAs("root")
	masters := []string{clusters.RemoteUserHeader, "admin", clusters.RemoteGroupHeader, "system:masters"}
	for name, c := range map[string]struct {
		method, path string
		headers      []string
		want         int
	}{
		"for itself":              {http.MethodPost, routing.StepDownPath, nil, http.StatusForbidden},
		"for somebody":            {http.MethodPost, routing.StepDownPath, []string{clusters.RemoteUserHeader, "joe"}, http.StatusForbidden},
		"for another shard":       {http.MethodPost, routing.StepDownPath, []string{clusters.RemoteUserHeader, "system:regent:shard:eu1"}, http.StatusUnauthorized},
		"for the server's own":    {http.MethodPost, routing.StepDownPath, []string{clusters.RemoteUserHeader, identity.LeaderUser, clusters.RemoteGroupHeader, "system:masters"}, http.StatusUnauthorized},
		"something else":          {http.MethodGet, "/clusters/root/api/v1/secrets", masters, http.StatusForbidden},
		"something else, written": {http.MethodPost, "/clusters/root/api/v1/namespaces", masters, http.StatusForbidden},
		"below the path":          {http.MethodGet, routing.StepDownPath + "/more", masters, http.StatusForbidden},
		"for an administrator":    {http.MethodPost, routing.StepDownPath, masters, http.StatusOK},
	} {
		if code, _, answer := browse(t, own, c.method, root.url+c.path, "{}", c.headers...); code != c.want {
			t.Errorf("%s: %d %s, want %d", name, code, answer, c.want)
		}
	}
}
