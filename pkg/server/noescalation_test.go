package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
)

var sequencesFlag = flag.Int("sequences", 15, "sequences of writes in TestNobodyGetsARightThatNobodyHad; give -rapid.checks, too, for more than 100")

// conspiracy is a logical cluster in which bob may write all roles and bindings, and eve those of one namespace.
// Neither may escalate or bind, and nobody else helps them. So whatever they write, as themselves, as each other or as
// service accounts, and whatever the server makes of it: none of them has a right that none of them had.
type conspiracy struct {
	*rapid.T
	at      *replica
	cluster string
	bot     string // a token of service account bot, once somebody has got one
	had     map[string]bool
	answers map[int]int
}

const (
	mayWriteRoles = `{"verbs":["create","get","list","update","patch","delete"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings","clusterroles","clusterrolebindings"]}`
	rolesGroup    = "/apis/rbac.authorization.k8s.io/v1"
)

func conspire(t *rapid.T, s *society, n int, answers map[int]int) *conspiracy {
	name := fmt.Sprint("plot-", n)
	s.create(name)
	c := &conspiracy{T: t, at: s.at.replica, cluster: s.ready(name), answers: answers}
	for _, role := range []string{
		`{"metadata":{"name":"writer"},"rules":[` + mayWriteRoles + `]}`,
		`{"metadata":{"name":"aggregated"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"x":"1"}}]}}`,
		`{"metadata":{"name":"stuff"},"rules":` + c.rules(false) + `}`,
		`{"metadata":{"name":"acting"},"rules":[{"verbs":["impersonate"],"apiGroups":[""],"resources":["users","serviceaccounts"]},
			{"verbs":["create"],"apiGroups":[""],"resources":["serviceaccounts","serviceaccounts/token"]}]}`,
	} {
		c.prepare("/clusterroles", role)
	}
	bind := func(name, role, who string) {
		c.prepare("/clusterrolebindings", binding(name, "ClusterRole/"+role, who))
	}
	for _, name := range []string{"r1", "r2"} {
		c.prepare("/clusterroles", `{"metadata":{"name":"`+name+`"}}`)
		c.prepare("/namespaces/default/roles", `{"metadata":{"name":"`+name+`"}}`)
	}
	for _, who := range []string{"bob", "eve"} {
		bind(who, access.AccessRole, who)
	}
	bind("b", "writer", "bob")
	c.prepare("/namespaces/default/rolebindings", binding("e", "ClusterRole/writer", "eve"))
	c.prepare("/namespaces/default/rolebindings", binding("s", "ClusterRole/stuff", rapid.SampledFrom([]string{"bob", "eve"}).Draw(t, "who has stuff")))
	for _, role := range []string{"aggregated", "view", "acting", "stuff"} {
		if rapid.Bool().Draw(t, "bound "+role) {
			bind("has-"+role, role, rapid.SampledFrom([]string{"bob", "eve"}).Draw(t, "who has "+role))
		}
	}
	c.had = c.has(c.stored())
	return c
}

// prepare has the administrator write.
func (c *conspiracy) prepare(path, body string) {
	if got := c.send(http.MethodPost, rolesGroup+path, "application/json", body, "boss", http.Header{}); got.status != http.StatusCreated {
		c.Fatalf("%s %s: %d %s", path, body, got.status, got.body)
	}
}

func binding(name, role, who string) string {
	kind, ref, _ := strings.Cut(role, "/")
	subject := `{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + who + `"}`
	if of, account, ok := strings.Cut(who, "/"); ok {
		subject = `{"kind":"ServiceAccount","namespace":"` + of + `","name":"` + account + `"}`
	} else if strings.HasPrefix(who, "system:") {
		subject = strings.Replace(subject, "User", "Group", 1)
	}
	return `{"metadata":{"name":"` + name + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"` + kind + `","name":"` + ref + `"},"subjects":[` + subject + `]}`
}

// likely are rules that bob and eve are likely to have.
var likely = []string{
	`[]`, mayWriteRoles, `{"verbs":["get"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"]}`, `{"verbs":["get"],"apiGroups":[""],"resources":["configmaps"]}`,
	`{"verbs":["delete"],"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"resourceNames":["n"]}`,
	`{"verbs":["impersonate"],"apiGroups":[""],"resources":["users"]}`,
}

// rules draws a few rules, of which a user may have some or not.
func (c *conspiracy) rules(namespaced bool) string {
	if c.had != nil && rapid.IntRange(0, 2).Draw(c.T, "likely") > 0 {
		return "[" + strings.Trim(rapid.SampledFrom(likely).Draw(c.T, "rule"), "[]") + "]"
	}
	var rules []rbacv1.PolicyRule
	for range rapid.IntRange(0, 2).Draw(c.T, "rules") {
		if !namespaced && rapid.IntRange(0, 4).Draw(c.T, "of URLs") == 0 {
			rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{rapid.SampledFrom([]string{"/x", "/x*", "*"}).Draw(c.T, "URL")}})
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{
			Verbs:         []string{rapid.SampledFrom([]string{"get", "create", "delete", "*", "impersonate", "escalate", "bind"}).Draw(c.T, "verb")},
			APIGroups:     []string{rapid.SampledFrom([]string{"", "", "rbac.authorization.k8s.io", "*"}).Draw(c.T, "group")},
			Resources:     []string{rapid.SampledFrom([]string{"configmaps", "secrets", "secrets/status", "users", "roles", "*"}).Draw(c.T, "resource")},
			ResourceNames: rapid.SliceOfN(rapid.SampledFrom([]string{"n"}), 0, 1).Draw(c.T, "names"),
		})
	}
	if rules == nil {
		return "[]"
	}
	// What bob and eve get at the beginning must not let them escalate: then they may.
	for n := range rules {
		if c.had == nil && (rules[n].Verbs[0] == "*" || rules[n].Verbs[0] == "escalate" || rules[n].Verbs[0] == "bind") {
			rules[n].Verbs = []string{"get"}
		}
	}
	out, err := json.Marshal(rules)
	if err != nil {
		c.Fatal(err)
	}
	return string(out)
}

func (c *conspiracy) stored() access.Policy {
	policy, err := c.at.server.identity.Stored(c.Context(), logicalcluster.Name(c.cluster))
	if err != nil {
		c.Fatal(err)
	}
	return policy
}

// has returns which rights any of the conspirators has by a policy. dave is whoever has logged in.
func (c *conspiracy) has(policy access.Policy) map[string]bool {
	judge := &access.Authorizer{Policy: policy}
	ctx := clusters.With(c.Context(), logicalcluster.Name(c.cluster))
	out := map[string]bool{}
	for _, who := range []user.Info{
		&user.DefaultInfo{Name: "bob", Groups: []string{user.AllAuthenticated, "bobs-friends"}}, &user.DefaultInfo{Name: "eve", Groups: []string{user.AllAuthenticated, "eves-friends"}},
		&user.DefaultInfo{Name: "dave", Groups: []string{user.AllAuthenticated}},
		&user.DefaultInfo{Name: "system:serviceaccount:default:bot", Groups: []string{user.AllAuthenticated, "system:serviceaccounts", "system:serviceaccounts:default"}},
	} {
		for what, right := range rights {
			decision, _, err := judge.Authorize(ctx, userRight{right, who})
			if err != nil {
				c.Fatal(err)
			}
			out[what] = out[what] || decision == authorizer.DecisionAllow
		}
	}
	return out
}

// userRight is a right of somebody.
type userRight struct {
	authorizer.Attributes
	who user.Info
}

func (a userRight) GetUser() user.Info { return a.who }

// rights are what is looked for, by names.
var rights = func() map[string]authorizer.Attributes {
	out := map[string]authorizer.Attributes{}
	for _, path := range []string{"/x", "/xy", "/z"} {
		out["get "+path] = authorizer.AttributesRecord{Verb: "get", Path: path}
	}
	for _, verb := range []string{"get", "create", "delete", "update", "impersonate", "escalate", "bind"} {
		for _, of := range []string{"/configmaps", "/secrets", "/secrets/status", "/users", "/groups", "rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/clusterroles", "x/y"} {
			part := strings.SplitN(of+"/", "/", 3)
			for _, namespace := range []string{"", "default", "kube-system"} {
				for _, name := range []string{"n", "m"} {
					out[strings.Join([]string{verb, of, namespace, name}, " ")] = authorizer.AttributesRecord{
						Verb: verb, APIGroup: part[0], Resource: part[1], Subresource: strings.TrimSuffix(part[2], "/"), Namespace: namespace, Name: name, ResourceRequest: true,
					}
				}
			}
		}
	}
	return out
}()

// act has one of them write something.
func (c *conspiracy) act() {
	who := rapid.SampledFrom([]string{"bob", "bob", "bob", "bob", "eve", "bot"}).Draw(c.T, "who")
	if who == "bot" && c.bot == "" {
		who = "eve"
	}
	token, header := map[string]string{"bob": "bob", "eve": "eve", "bot": c.bot}[who], http.Header{}
	switch rapid.SampledFrom([]int{9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 1, 2, 3}).Draw(c.T, "as whom") {
	case 0:
		header.Set("Impersonate-User", "eve")
	case 1:
		header.Set("Impersonate-User", "bob")
	case 2:
		header.Set("Impersonate-User", "system:serviceaccount:default:bot")
	case 3:
		header.Set("Impersonate-User", "bob")
		header.Set("Impersonate-Group", rapid.SampledFrom([]string{"system:masters", "system:regent:x"}).Draw(c.T, "in which group"))
	}
	method, path, contentType, body := c.write()
	got := c.send(method, path, contentType, body, token, header)
	c.answers[got.status]++
	if strings.HasSuffix(path, "/token") && got.status == http.StatusCreated {
		var made struct{ Status struct{ Token string } }
		if err := json.Unmarshal([]byte(got.body), &made); err != nil {
			c.Fatal(err)
		}
		c.bot = made.Status.Token
	}
}

func (c *conspiracy) send(method, path, contentType, body, token string, header http.Header) answer {
	req, err := http.NewRequestWithContext(c.Context(), method, c.at.url+"/clusters/"+c.cluster+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", contentType)
	resp, err := c.at.client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	return answer{status: resp.StatusCode, body: string(read)}
}

// write draws a request.
func (c *conspiracy) write() (method, path, contentType, body string) {
	if rapid.IntRange(0, 7).Draw(c.T, "an account") == 0 {
		const accounts = "/api/v1/namespaces/default/serviceaccounts"
		if rapid.Bool().Draw(c.T, "a token") {
			return http.MethodPost, accounts + "/bot/token", "application/json", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`
		}
		return http.MethodPost, accounts, "application/json", `{"metadata":{"name":"bot"}}`
	}
	kind := rapid.SampledFrom([]string{"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"}).Draw(c.T, "kind")
	path = rolesGroup + "/" + strings.ToLower(kind) + "s"
	namespaced := !strings.HasPrefix(kind, "Cluster")
	if namespaced {
		path = rolesGroup + "/namespaces/" + rapid.SampledFrom([]string{"default", "default", "kube-system"}).Draw(c.T, "namespace") + "/" + strings.ToLower(kind) + "s"
	}
	name := rapid.SampledFrom([]string{"r1", "r2", "r1", "r2", "r1", "r2", "stuff", "aggregated", "view", "writer"}).Draw(c.T, "name")
	if strings.HasSuffix(kind, "Binding") {
		name = rapid.SampledFrom([]string{"b1", "b2", "b", "s", "has-view"}).Draw(c.T, "name of the binding")
		of := rapid.SampledFrom([]string{"r1", "r2", "r1", "r2", "cluster-admin", "admin", "view", "stuff", "aggregated", "writer", "acting"}).Draw(c.T, "role")
		if of = "ClusterRole/" + of; namespaced && rapid.IntRange(0, 3).Draw(c.T, "to a role") == 0 {
			of = "Role/r1"
		}
		body = binding(name, of, rapid.SampledFrom([]string{"bob", "eve", "dave", "default/bot", "system:authenticated", "system:serviceaccounts"}).Draw(c.T, "subject"))
	} else {
		body = `{"metadata":{"name":"` + name + `","labels":` + rapid.SampledFrom([]string{`{}`, `{"x":"1"}`, `{"x":null}`, `{"rbac.authorization.k8s.io/aggregate-to-view":"true"}`}).Draw(c.T, "labels") + `}`
		if rapid.IntRange(0, 2).Draw(c.T, "with rules") > 0 {
			body += `,"rules":` + c.rules(namespaced)
		}
		if !namespaced && rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 0}).Draw(c.T, "with aggregation") == 0 {
			body += `,"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"x":"1"}}]}`
		}
		body += "}"
	}
	switch at := path + "/" + name; rapid.SampledFrom([]string{"update", "update", "merge", "merge", "apply", "apply", "create", "generate", "delete", "all"}).Draw(c.T, "method") {
	case "create":
		return http.MethodPost, path, "application/json", strings.ReplaceAll(body, `"x":null`, "")
	case "update":
		return http.MethodPut, at, "application/json", strings.ReplaceAll(body, `"x":null`, "")
	case "merge":
		return http.MethodPatch, at, "application/merge-patch+json", body
	case "apply":
		return http.MethodPatch, at + "?fieldManager=m&force=true", "application/apply-patch+yaml",
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"` + kind + `",` + strings.ReplaceAll(body, `"x":null`, "")[1:]
	case "generate":
		return http.MethodPost, path, "application/json", strings.Replace(strings.ReplaceAll(body, `"x":null`, ""), `"name":"`+name+`"`, `"generateName":"`+name+`-"`, 1)
	case "all":
		return http.MethodDelete, path + "?labelSelector=x=1", "application/json", ""
	default:
		return http.MethodDelete, at, "application/json", ""
	}
}

// judge compares what they have with what they had.
func (c *conspiracy) judge(policy access.Policy) {
	for what, has := range c.has(policy) {
		if has && !c.had[what] {
			c.Errorf("somebody may %s in %s, and nobody could", what, c.cluster)
		}
	}
}

// "Must show" 3 of the issue about access, over the whole server: no sequence of writes gives anybody a right that
// nobody had.
func TestNobodyGetsARightThatNobodyHad(t *testing.T) {
	s := startSociety(t)
	n, failed, answers := 0, false, map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		if n++; n > *sequencesFlag && !failed {
			return
		}
		c := conspire(t, s, n, answers)
		failed = true
		for range 20 {
			c.act()
		}
		c.judge(c.stored())
		// What the aggregation makes of it comes a little later.
		for deadline := time.Now().Add(50 * time.Millisecond); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			c.judge(c.stored())
		}
		c.judge(s.at.server.identity.Policy())
		failed = t.Failed()
	})
	if answers[http.StatusCreated] < *sequencesFlag || answers[http.StatusOK] < *sequencesFlag || answers[http.StatusForbidden] < *sequencesFlag {
		t.Errorf("the answers are %v: too few of a kind for this test to mean something", answers)
	}
	t.Logf("answers: %v", answers)
}
