package authorization

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/webhooks"
	"github.com/regent-project/regent/test/until"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// hook is a webhook whose answers a test gives.
type hook struct {
	answer atomic.Pointer[func(spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus]
	hangs  atomic.Pointer[chan struct{}] // it hangs until this is closed
	asked  atomic.Int64
	file   string
}

func startHook(t *testing.T, answer func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus) *hook {
	t.Helper()
	h := &hook{}
	h.answer.Store(&answer)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.file = filepath.Join(t.TempDir(), "webhook.kubeconfig")
	writeFile(t, h.file, fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: %q}}]}`, server.URL))
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h.asked.Add(1)
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.APIVersion != "authorization.k8s.io/v1" {
		http.Error(w, "no SubjectAccessReview", http.StatusBadRequest)
		return
	}
	if wake := h.hangs.Load(); wake != nil {
		select {
		case <-*wake:
		case <-req.Context().Done():
		}
		http.Error(w, "so it fails", http.StatusBadRequest)
		return
	}
	review.Status = (*h.answer.Load())(review.Spec)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// entry returns the hook's entry in a file.
func (h *hook) entry(name, policy, further string) string {
	return fmt.Sprintf(`- type: Webhook
  name: %s
  webhook:
    timeout: 30s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
%s`, name, policy, h.file, further)
}

const (
	header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	rbac   = "- {type: RBAC, name: rbac}\n"
)

// writeFile puts another file in its place, as Kubernetes' volumes do: nobody reads half of it.
func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name+".next", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".next", name); err != nil {
		t.Fatal(err)
	}
}

// start runs what a file says, with an RBAC that allows what the user "owner" does and says nothing about others.
func start(t *testing.T, content string) (a authorizer.Authorizer, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "authorization.yaml")
	writeFile(t, file, content)
	made, err := New(Config{File: file, Never: func(who user.Info) bool { return strings.HasPrefix(who.GetName(), "system:regent:") }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { made.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		made.Close()
	})
	return made.Around(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "owner" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "rbac: no", nil
	})), file
}

func ask(t *testing.T, a authorizer.Authorizer, cluster logicalcluster.Name, who user.Info, verb string) (authorizer.Decision, error) {
	t.Helper()
	ctx := t.Context()
	if cluster != "" {
		ctx = clusters.With(ctx, cluster)
	}
	decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{User: who, Verb: verb, Resource: "configmaps", Namespace: "default", ResourceRequest: true})
	return decision, err
}

var (
	ann   = &user.DefaultInfo{Name: "ann", Groups: []string{"dev"}, Extra: map[string][]string{clusterKey: {"forged"}, "team": {"a"}}}
	owner = &user.DefaultInfo{Name: "owner"}
)

// robot is a service account of a cluster.
func robot(home ...string) user.Info {
	return &user.DefaultInfo{Name: "system:serviceaccount:default:robot", Extra: map[string][]string{clusters.IdentityClusterExtra: home}}
}

func allowAll(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
}

func TestAWebhookIsToldTheClusterAndAskedAboutNoOtherThings(t *testing.T) {
	var told sync.Map
	h := startHook(t, func(spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		told.Store(spec.User, spec)
		return authorizationv1.SubjectAccessReviewStatus{Allowed: slices.Equal(spec.Extra[clusterKey], []string{"mine"})}
	})
	a, _ := start(t, header+rbac+h.entry("hook", "Deny", ""))
	for _, c := range []struct {
		cluster logicalcluster.Name
		who     user.Info
		want    authorizer.Decision
		asked   int64
	}{
		{"mine", ann, authorizer.DecisionAllow, 1},
		{"yours", ann, authorizer.DecisionNoOpinion, 1},
		{"yours", owner, authorizer.DecisionAllow, 0}, // RBAC stands first
		{"", ann, authorizer.DecisionNoOpinion, 0},    // no such cluster, or not known yet
		{clusters.Wildcard, ann, authorizer.DecisionNoOpinion, 0},
		{clusters.SystemAdmin, ann, authorizer.DecisionNoOpinion, 0},
		{"mine", &user.DefaultInfo{Name: "system:regent:shard:a"}, authorizer.DecisionNoOpinion, 0},
		{"mine", robot("mine"), authorizer.DecisionAllow, 1},
		{"mine", robot("yours"), authorizer.DecisionNoOpinion, 0}, // somebody else of the same name
		{"mine", robot("mine", "yours"), authorizer.DecisionNoOpinion, 0},
		{"mine", &user.DefaultInfo{Name: "ann", Extra: map[string][]string{"authentication.kcp.io/scopes": {"cluster:yours"}}}, authorizer.DecisionNoOpinion, 0},
	} {
		before := h.asked.Load()
		got, err := ask(t, a, c.cluster, c.who, "get")
		if err != nil || got != c.want || h.asked.Load()-before != c.asked {
			t.Errorf("%s in %q: %v, %v, asked %d times; want %v, %d", c.who.GetName(), c.cluster, got, err, h.asked.Load()-before, c.want, c.asked)
		}
	}
	spec, _ := told.Load("ann")
	if got := spec.(authorizationv1.SubjectAccessReviewSpec); got.ResourceAttributes.Verb != "get" || !slices.Equal(got.Extra["team"], []string{"a"}) {
		t.Errorf("told %v", got)
	}
	if len(ann.Extra[clusterKey]) != 1 || ann.Extra[clusterKey][0] != "forged" {
		t.Error("the user was changed")
	}
}

func TestTheFilesOrderDecides(t *testing.T) {
	deny := startHook(t, func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "never"}
	})
	allow := startHook(t, allowAll)
	onlyDeletes := "    matchConditions: [{expression: \"request.resourceAttributes.verb == 'delete'\"}]\n"
	inMine := "    matchConditions: [{expression: \"request.extra['authorization.kcp.io/cluster-name'] == ['mine']\"}]\n"
	for name, c := range map[string]struct {
		file           string
		annGet, annDel authorizer.Decision
		ownerDel       authorizer.Decision
	}{
		"RBAC alone":                {rbac, authorizer.DecisionNoOpinion, authorizer.DecisionNoOpinion, authorizer.DecisionAllow},
		"a refusal in front":        {deny.entry("deny", "Deny", onlyDeletes) + rbac + allow.entry("allow", "Deny", ""), authorizer.DecisionAllow, authorizer.DecisionDeny, authorizer.DecisionDeny},
		"a refusal behind":          {rbac + deny.entry("deny", "Deny", onlyDeletes), authorizer.DecisionNoOpinion, authorizer.DecisionDeny, authorizer.DecisionAllow},
		"for one cluster by a rule": {rbac + allow.entry("allow", "Deny", inMine), authorizer.DecisionAllow, authorizer.DecisionAllow, authorizer.DecisionAllow},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := start(t, header+c.file)
			for _, q := range []struct {
				who  user.Info
				verb string
				want authorizer.Decision
			}{{ann, "get", c.annGet}, {ann, "delete", c.annDel}, {owner, "delete", c.ownerDel}} {
				if got, err := ask(t, a, "mine", q.who, q.verb); err != nil || got != q.want {
					t.Errorf("%s %s: %v, %v; want %v", q.who.GetName(), q.verb, got, err, q.want)
				}
			}
			if strings.Contains(c.file, "extra") {
				if got, _ := ask(t, a, "yours", ann, "get"); got != authorizer.DecisionNoOpinion {
					t.Errorf("in another cluster: %v", got)
				}
			}
		})
	}
}

func TestAnswersAreRememberedForAsLongAsTheFileSays(t *testing.T) {
	h := startHook(t, allowAll)
	long, _ := start(t, header+rbac+h.entry("hook", "Deny", "    authorizedTTL: 1h\n    unauthorizedTTL: 1h\n"))
	for range 5 {
		if got, err := ask(t, long, "mine", ann, "get"); got != authorizer.DecisionAllow {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if n := h.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	a, file := start(t, header+rbac+h.entry("hook", "Deny", "    authorizedTTL: 400ms\n    unauthorizedTTL: 10ms\n"))
	if got, err := ask(t, a, "mine", ann, "get"); got != authorizer.DecisionAllow {
		t.Fatalf("%v, %v", got, err)
	}
	no := func(authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{}
	}
	h.answer.Store(&no)
	took := until.So(t, "the right's end", func() bool { got, _ := ask(t, a, "mine", ann, "get"); return got != authorizer.DecisionAllow })
	t.Logf("with a TTL of 400ms a right that was withdrawn ended after %v", took)

	yes := allowAll
	h.answer.Store(&yes)
	writeFile(t, file, header+rbac+h.entry("hook", "Deny", ""))
	until.So(t, "the right", func() bool { got, _ := ask(t, a, "mine", ann, "get"); return got == authorizer.DecisionAllow })
	writeFile(t, file, header+"- {type: Node, name: node}\n")
	writeFile(t, file, header+rbac)
	took = until.So(t, "the webhook's end", func() bool { got, _ := ask(t, a, "mine", ann, "get"); return got != authorizer.DecisionAllow })
	t.Logf("a webhook that was taken out of the file is not asked any more after %v", took)
}

// A webhook that hangs keeps no more requests waiting than the limit. What it has answered before counts meanwhile.
func TestAWebhookThatHangsKeepsFewRequestsWaiting(t *testing.T) {
	h := startHook(t, allowAll)
	for policy, want := range map[string]authorizer.Decision{"Deny": authorizer.DecisionDeny, "NoOpinion": authorizer.DecisionNoOpinion} {
		h.hangs.Store(nil)
		a, _ := start(t, header+rbac+h.entry("hook", policy, ""))
		if got, err := ask(t, a, "mine", ann, "get"); got != authorizer.DecisionAllow {
			t.Fatalf("%v, %v", got, err)
		}
		wake := make(chan struct{})
		h.hangs.Store(&wake)
		before := h.asked.Load()
		refused := make(chan struct{}, 3*webhooks.Limit)
		var all sync.WaitGroup
		for i := range 3 * webhooks.Limit {
			all.Go(func() {
				got, err := ask(t, a, "mine", ann, fmt.Sprintf("verb-%d", i))
				refused <- struct{}{}
				if err == nil || got != want {
					t.Errorf("%v, %v; want %v", got, err, want)
				} else if !strings.Contains(err.Error(), "webhook \"hook\"") || strings.Contains(err.Error(), "http") {
					t.Errorf("users are told %q: want the webhook's name, and not where it is", err)
				}
			})
		}
		if got, err := ask(t, a, "mine", ann, "get"); got != authorizer.DecisionAllow {
			t.Errorf("an answer that is remembered: %v, %v", got, err)
		}
		for range 2 * webhooks.Limit { // while the others wait
			<-refused
		}
		if n := h.asked.Load() - before; n > webhooks.Limit {
			t.Errorf("%d calls were under way", n)
		}
		close(wake)
		all.Wait()
	}
}

// A webhook that hangs costs each of its requests the time that its entry allows.
func TestAWebhookThatHangsIsGivenUp(t *testing.T) {
	h := startHook(t, allowAll)
	wake := make(chan struct{})
	defer close(wake)
	h.hangs.Store(&wake)
	a, _ := start(t, header+rbac+strings.ReplaceAll(h.entry("hook", "Deny", ""), "timeout: 30s", "timeout: 1s"))
	if got, err := ask(t, a, "mine", ann, "get"); err == nil || got != authorizer.DecisionDeny || !strings.Contains(err.Error(), "webhook \"hook\"") {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWhatIsNotSupportedIsAClearError(t *testing.T) {
	h := startHook(t, allowAll)
	for content, want := range map[string]string{
		"": "empty",
		header + "- {type: Node, name: node}\n" + rbac:                                                  "Node is not supported",
		header + "- {type: AlwaysAllow, name: a}\n" + rbac:                                              "AlwaysAllow is not supported",
		header + "- {type: ABAC, name: a}\n" + rbac:                                                     "ABAC is not supported",
		header + h.entry("hook", "Deny", ""):                                                            "RBAC is always on",
		header + rbac + rbac:                                                                            "Duplicate",
		header + rbac + h.entry("hook", "Perhaps", ""):                                                  "failurePolicy",
		header + rbac + h.entry("hook", "Deny", "    ttl: 1s\n"):                                        "unknown field",
		header + rbac + h.entry("hook", "Deny", "    matchConditions: [{expression: 'request.'}]\n"):    "matchConditions",
		strings.ReplaceAll(header+rbac+h.entry("hook", "Deny", ""), h.file, h.file+".missing"):          "no such file",
		header + rbac + strings.ReplaceAll(h.entry("hook", "Deny", ""), "timeout: 30s", "timeout: 31s"): "timeout",
		header + rbac + "- {type: Webhook, name: a, webhook: {timeout: 1s, subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}}}\n": "KubeConfigFile",
	} {
		file := filepath.Join(t.TempDir(), "f.yaml")
		writeFile(t, file, content)
		if _, err := New(Config{File: file}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--authorization-config") {
			t.Errorf("%v; want an error about %s", err, want)
		}
	}
}
