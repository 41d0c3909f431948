package access_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
)

// document is the policy of one cluster as the scripts write it. Names with a slash are those of a namespace's objects.
type document struct {
	Cluster  string                         `json:"cluster"` // c, if empty
	Roles    map[string][]rbacv1.PolicyRule `json:"roles"`
	Labels   map[string]map[string]string   `json:"labels"` // of cluster roles
	Bindings map[string]binding             `json:"bindings"`
}

// binding has a role such as ClusterRole/view, and subjects such as User/ann, Group/devs, and
// ServiceAccount/default/builder.
type binding struct {
	Role string   `json:"role"`
	To   []string `json:"to"`
}

// add adds the objects of a document to a policy.
func (d document) add(s *access.Snapshot) {
	cluster := d.Cluster
	if cluster == "" {
		cluster = "c"
	}
	for _, name := range slices.Sorted(maps.Keys(d.Roles)) { // in an order that a seed makes again
		rules := d.Roles[name]
		meta := metaOf(cluster, name)
		if meta.Namespace != "" {
			s.RoleList = append(s.RoleList, &rbacv1.Role{ObjectMeta: meta, Rules: rules})
			continue
		}
		meta.Labels = d.Labels[name]
		s.ClusterRoleList = append(s.ClusterRoleList, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Bindings)) {
		b := d.Bindings[name]
		kind, role, _ := strings.Cut(b.Role, "/")
		meta, ref := metaOf(cluster, name), rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
		if meta.Namespace != "" {
			s.RoleBindingList = append(s.RoleBindingList, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjectsOf(b.To)})
			continue
		}
		s.ClusterRoleBindingList = append(s.ClusterRoleBindingList, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjectsOf(b.To)})
	}
}

func metaOf(cluster, name string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}
	if namespace, in, ok := strings.Cut(name, "/"); ok {
		meta.Namespace, meta.Name = namespace, in
	}
	return meta
}

func subjectsOf(to []string) (out []rbacv1.Subject) {
	for _, s := range to {
		kind, name, _ := strings.Cut(s, "/")
		subject := rbacv1.Subject{Kind: kind, Name: name, APIGroup: rbacv1.GroupName}
		if kind == rbacv1.ServiceAccountKind {
			subject.APIGroup = ""
			if namespace, in, ok := strings.Cut(name, "/"); ok {
				subject.Namespace, subject.Name = namespace, in
			}
		}
		out = append(out, subject)
	}
	return out
}

// question is one line of a script, for one verb.
type question struct {
	line    int
	text    string
	cluster string // empty: the request is in none
	attr    authorizer.AttributesRecord
	want    bool
}

// script is a policy, and what it allows. It begins with YAML documents, up to a line that says "requests". Each line
// below that is
//
//	SUBJECT VERB[,VERB...] THING yes|no
//
// SUBJECT is a user name with groups, as in ann+devs+ops (all are in system:authenticated, but for anonymous), or a
// service account NAMESPACE/NAME: with @CLUSTER that of a cluster, and without that one that somebody impersonates. A !
// and the key of an extra limit an identity. THING is a path, or [NAMESPACE:]RESOURCE[.GROUP][/SUBRESOURCE][=NAME]. A
// line "in CLUSTER" says in which cluster the next requests are; "in nowhere" is none.
type script struct {
	policy    *access.Snapshot
	questions []question
}

func parseScript(t *testing.T, file string) script {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	policy, requests, ok := bytes.Cut(text, []byte("\nrequests\n"))
	if !ok {
		t.Fatalf("%s has no line requests", file)
	}
	s := script{policy: &access.Snapshot{}}
	for doc := range bytes.SplitSeq(policy, []byte("\n---\n")) {
		var d document
		if err := yaml.UnmarshalStrict(doc, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		d.add(s.policy)
	}
	line, cluster := bytes.Count(policy, []byte("\n"))+2, "c"
	for scanner := bufio.NewScanner(bytes.NewReader(requests)); scanner.Scan(); {
		line++
		before, _, _ := strings.Cut(scanner.Text(), "#")
		switch f := strings.Fields(before); {
		case len(f) == 0:
		case len(f) == 2 && f[0] == "in":
			cluster = strings.TrimPrefix(f[1], "nowhere")
		case len(f) == 4 && (f[3] == "yes" || f[3] == "no"):
			for verb := range strings.SplitSeq(f[1], ",") {
				attr := thing(f[2])
				attr.User, attr.Verb = person(f[0]), verb
				s.questions = append(s.questions, question{line, strings.Join(f, " "), cluster, attr, f[3] == "yes"})
			}
		default:
			t.Fatalf("%s:%d: %q is no request", file, line, scanner.Text())
		}
	}
	return s
}

func person(text string) *user.DefaultInfo {
	text, extra, limited := strings.Cut(text, "!")
	names, home, ofCluster := strings.Cut(text, "@")
	groups := strings.Split(names, "+")
	who := &user.DefaultInfo{Name: groups[0], Groups: append(groups[1:], user.AllAuthenticated), Extra: map[string][]string{}}
	if namespace, name, ok := strings.Cut(who.Name, "/"); ok {
		who.Name = "system:serviceaccount:" + namespace + ":" + name
		who.Groups = append(who.Groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	if who.Name == "anonymous" {
		who.Name, who.Groups = user.Anonymous, []string{user.AllUnauthenticated}
	}
	if ofCluster {
		who.Extra[clusters.IdentityClusterExtra] = strings.Split(home, "@")
	}
	if limited {
		who.Extra[extra] = []string{"x"}
	}
	return who
}

func thing(text string) (a authorizer.AttributesRecord) {
	if strings.HasPrefix(text, "/") {
		a.Path = text
		return a
	}
	a.ResourceRequest = true
	if namespace, rest, ok := strings.Cut(text, ":"); ok {
		a.Namespace, text = namespace, rest
	}
	text, a.Name, _ = strings.Cut(text, "=")
	text, a.Subresource, _ = strings.Cut(text, "/")
	a.Resource, a.APIGroup, _ = strings.Cut(text, ".")
	return a
}

// asking is a test, or a check of rapid.
type asking interface {
	Context() context.Context
	Fatal(...any)
}

// ask returns what an authorizer with a policy says.
func ask(t asking, policy access.Policy, cluster string, attr authorizer.Attributes) bool {
	ctx := t.Context()
	if cluster != "" {
		ctx = clusters.With(ctx, logicalcluster.Name(cluster))
	}
	decision, _, err := (&access.Authorizer{Policy: policy}).Authorize(ctx, attr)
	if err != nil {
		t.Fatal(fmt.Errorf("authorize: %w", err))
	}
	return decision == authorizer.DecisionAllow
}
