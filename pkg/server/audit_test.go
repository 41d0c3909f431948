package server

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/routing"
)

const shippedPolicy = "../../deploy/audit-policy.yaml"

// What the shipped policy has of which request, by upstream's own loader and evaluator.
func TestTheShippedAuditPolicyHasNoBodiesAndNoNoise(t *testing.T) {
	loaded, err := policy.LoadPolicyFromFile(shippedPolicy)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range loaded.Rules {
		if !rule.Level.Less(auditinternal.LevelRequest) {
			t.Errorf("a rule has bodies: %v", rule)
		}
	}
	evaluator := policy.NewPolicyRuleEvaluator(loaded)
	of := func(who, verb, group, resource, subresource string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, ResourceRequest: true}
	}
	at := func(verb, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}, Verb: verb, Path: path}
	}
	for want, requests := range map[auditinternal.Level][]authorizer.AttributesRecord{
		auditinternal.LevelMetadata: {
			of("ann", "create", "", "secrets", ""), of("ann", "list", "", "secrets", ""), of(identity.LeaderUser, "get", "", "secrets", ""),
			of("ann", "create", "", "serviceaccounts", "token"), of("ann", "create", "authentication.k8s.io", "tokenreviews", ""),
			of("ann", "get", "", "configmaps", ""), of(identity.LeaderUser, "update", "", "configmaps", ""),
			of("ann", "update", "coordination.k8s.io", "leases", ""), of(identity.LeaderUser, "update", "coordination.k8s.io", "leases", ""),
			at("post", routing.StepDownPath), at("get", "/debug/pprof/heap"), at("delete", "/metrics"),
		},
		auditinternal.LevelNone: {
			of("ann", "create", "", "events", ""), of(identity.LeaderUser, "patch", "events.k8s.io", "events", ""),
			of(identity.ReplicaUser, "update", "coordination.k8s.io", "leases", ""), of(identity.LeaderUser, "list", "", "configmaps", ""),
			at("get", "/readyz"), at("get", "/readyz/etcd"), at("get", "/livez"), at("get", "/version"), at("get", "/openapi/v3/api/v1"), at("get", "/apis"),
		},
	} {
		for _, request := range requests {
			if got := evaluator.EvaluatePolicyRule(request).Level; got != want {
				t.Errorf("%s %s of %s/%s by %s: %s, want %s", request.Verb, request.Path, request.Resource, request.Subresource, request.User.GetName(), got, want)
			}
		}
	}
}

// The log says which replica has answered, and of leaders' writes which term they are of, also when they are refused.
// It never has a Secret's data.
func TestTheAuditLogHasTermsAndNoSecrets(t *testing.T) {
	const secret, token = "s3cret-value", "t0ken-value"
	root := t.TempDir()
	wrote := make(chan fence.Token, 1)
	cfg := withController(t, config(t, root), func(ctx context.Context, deps controllers.Deps) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-the-leader"}}
		if _, err := deps.Clients.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(clusters.With(ctx, clusters.SystemAdmin), object, metav1.CreateOptions{}); err != nil {
			return err
		}
		wrote <- deps.Token
		<-ctx.Done()
		return nil
	})
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), tokensOfUsers)
	cfg.Audit.PolicyFile = shippedPolicy
	cfg.Audit.LogOptions.Path = filepath.Join(root, "audit.log")
	r := startReplica(t, cfg)
	term := <-wrote
	secrets := r.adminIn(t, clusters.SystemAdmin).CoreV1().Secrets(metav1.NamespaceSystem)
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-ann"}, StringData: map[string]string{"password": secret}}
	if _, err := secrets.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := secrets.Get(t.Context(), "of-ann", metav1.GetOptions{}); err != nil || string(got.Data["password"]) != secret {
		t.Fatal(got, err)
	}
	_ = r.ask(t, http.MethodGet, "/clusters/system:admin/api/v1/namespaces/kube-system/secrets", token) // 401
	over := fence.Token{Cluster: clusters.SystemAdmin, Namespace: "kube-system", Name: "another", UID: "u", Holder: "somebody", Epoch: 7}
	header, err := over.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	refused := r.askWith(t, http.MethodDelete, "/clusters/system:admin/api/v1/namespaces/kube-system/configmaps/of-the-leader", "t-root", http.Header{fence.Header: {header}})
	if refused.status != http.StatusPreconditionFailed {
		t.Errorf("a write of a term that is over: %d %s", refused.status, refused.body)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}

	log, err := os.ReadFile(cfg.Audit.LogOptions.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), token} {
		if strings.Contains(string(log), never) {
			t.Errorf("the log has %s", never)
		}
	}
	found := map[string]int{}
	for _, e := range eventsOf(t, cfg.Audit.LogOptions.Path) {
		if e.Annotations[edge.AuditShard] != cfg.Shard || e.Annotations[edge.AuditReplica] != r.server.name {
			t.Errorf("%s %s has the annotations %v", e.Verb, e.RequestURI, e.Annotations)
		}
		tokenOf := func(want fence.Token) bool {
			return e.Annotations[edge.AuditLease] == want.Cluster.String()+"/"+want.Namespace+"/"+want.Name &&
				e.Annotations[edge.AuditHolder] == want.Holder && e.Annotations[edge.AuditEpoch] == strconv.FormatInt(want.Epoch, 10)
		}
		switch ref := e.ObjectRef; {
		case ref == nil:
		case ref.Resource == "configmaps" && e.Verb == "create" && e.User.Username == identity.LeaderUser && tokenOf(term) && !strings.HasPrefix(ref.Name, history.Name):
			found["the leader's write"]++
		case ref.Resource == "configmaps" && e.Verb == "delete" && e.ResponseStatus.Code == http.StatusPreconditionFailed && tokenOf(over):
			found["the refused write"]++
		case ref.Resource == "secrets" && (e.Verb == "create" || e.Verb == "get") && e.Annotations[edge.AuditEpoch] == "":
			found["the Secret"]++
		case ref.Resource == "leases" && e.User.Username == identity.ReplicaUser, ref.Resource == "events":
			found["noise"]++
		}
	}
	for what, want := range map[string]int{"the leader's write": 1, "the refused write": 1, "the Secret": 2, "noise": 0} {
		if found[what] != want {
			t.Errorf("%s: %d entries, want %d", what, found[what], want)
		}
	}
}
