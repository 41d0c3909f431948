package access

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

var ann = &user.DefaultInfo{Name: "ann"}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: "a"}}
}

func bindAnn(n int, role func(n int) string) *Snapshot {
	s := &Snapshot{}
	for i := range n {
		s.ClusterRoleBindingList = append(s.ClusterRoleBindingList, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta(fmt.Sprint("b", i)), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role(i)}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "ann"}},
		})
	}
	return s
}

func many(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

func ruled(name string, rules int) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: meta(name)}
	for n := range rules {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", n)}})
	}
	return role
}

// A role of a megabyte has some 12,000 rules. With 10,000 bindings to it, one request took 14 s of a CPU.
func TestARoleIsVisitedOnceHoweverManyBindingsNameIt(t *testing.T) {
	for _, roles := range []int{1, fewRoles, fewRoles + 1, 3 * fewRoles} {
		s := bindAnn(10*roles, func(n int) string { return fmt.Sprint("role", n%roles) })
		for n := range roles {
			s.ClusterRoleList = append(s.ClusterRoleList, ruled(fmt.Sprint("role", n), 2))
		}
		rules, missing := rightsOf(s, "a", ann, "default")
		if len(rules) != 2*roles || len(missing) > 0 {
			t.Errorf("%d roles with two rules each: visited %d, missing %v", roles, len(rules), missing)
		}
	}
}

// Role and ClusterRole of one name are two.
func TestRolesOfOneNameAreAllVisited(t *testing.T) {
	s := bindAnn(1, func(int) string { return "same" })
	s.ClusterRoleList = []*rbacv1.ClusterRole{ruled("same", 1)}
	role := &rbacv1.Role{ObjectMeta: meta("same"), Rules: ruled("", 2).Rules}
	role.Namespace = "default"
	s.RoleList = []*rbacv1.Role{role}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta("b"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "same"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "ann"}}}
	binding.Namespace = "default"
	s.RoleBindingList = []*rbacv1.RoleBinding{binding}
	if rules, missing := rightsOf(s, "a", ann, "default"); len(rules) != 3 || len(missing) > 0 {
		t.Errorf("visited %d rules, want 3; missing %v", len(rules), missing)
	}
}

// One rule of 1,000 verbs, groups and resources each has a few kilobytes, and grants a thousand million rights.
func TestRightsThatAreTooManyToCompareAreNotCompared(t *testing.T) {
	s := bindAnn(1, func(int) string { return "view" })
	for what, rule := range map[string]rbacv1.PolicyRule{
		"resources": {Verbs: many("v", 1000), APIGroups: many("g", 1000), Resources: many("r", 1000)},
		"names":     {Verbs: many("v", 300), APIGroups: []string{""}, Resources: many("r", 300), ResourceNames: many("n", 300)},
		"overflow":  {Verbs: many("v", 20_000), APIGroups: many("g", 20_000), Resources: many("r", 20_000), ResourceNames: many("n", 20_000)},
		"URLs":      {Verbs: many("v", 5000), NonResourceURLs: many("/", 5000)},
	} {
		if _, err := exceeding(s, "a", ann, "", []rbacv1.PolicyRule{rule}); !errors.Is(err, errTooMuch) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What people have: all of edit, by somebody with fifty roles.
	s = bindAnn(50, func(n int) string { return fmt.Sprint("role", n) })
	for n := range 50 {
		s.ClusterRoleList = append(s.ClusterRoleList, ruled(fmt.Sprint("role", n), 20))
	}
	if _, err := exceeding(s, "a", ann, "", builtIn.roles["edit"].Rules); err != nil {
		t.Errorf("rules that people have: %v", err)
	}
}

func TestAReviewAndARefusalHaveABoundedSize(t *testing.T) {
	s := bindAnn(10_000, func(n int) string { return map[bool]string{true: "big", false: fmt.Sprint("none", n)}[n == 0] })
	s.ClusterRoleList = []*rbacv1.ClusterRole{ruled("big", 2*maxReviewed)}
	a := &Authorizer{Policy: s}
	ctx := clusters.With(t.Context(), "a")
	rules, incomplete := a.Rights(ctx, ann, "default")
	if len(rules) != maxReviewed || incomplete == nil || len(incomplete.Error()) > 10_000 {
		t.Errorf("%d rules, incomplete: %.300v", len(rules), incomplete)
	}
	decision, reason, err := a.Authorize(ctx, authorizer.AttributesRecord{User: ann, Verb: "get", Resource: "none", ResourceRequest: true})
	if decision != authorizer.DecisionNoOpinion || err != nil || len(reason) > 10_000 || !strings.Contains(reason, outside) {
		t.Errorf("%v, %v, a reason of %d bytes", decision, err, len(reason))
	}
	s.ClusterRoleBindingList = append(s.ClusterRoleBindingList, bindAnn(1, func(int) string { return AccessRole }).ClusterRoleBindingList...)
	if _, reason, _ := a.Authorize(ctx, authorizer.AttributesRecord{User: ann, Verb: "get", Resource: "none", ResourceRequest: true}); len(reason) > 10_000 || !strings.Contains(reason, "more") {
		t.Errorf("a reason of %d bytes: %.300s", len(reason), reason)
	}
}

// What others are aggregated to view is not copied for each request.
func TestAggregatedRulesCostNoCopy(t *testing.T) {
	s := bindAnn(1, func(int) string { return "view" })
	for n := range 1000 {
		part := ruled(fmt.Sprint("part", n), 10)
		part.Labels = map[string]string{controllers.AggregationPrefix + "view": "true"}
		s.ClusterRoleList = append(s.ClusterRoleList, part)
	}
	a := &Authorizer{Policy: s}
	ctx := clusters.With(t.Context(), "a")
	allocations := testing.AllocsPerRun(10, func() {
		_, _, _ = a.Authorize(ctx, authorizer.AttributesRecord{User: ann, Verb: "get", Resource: "none", ResourceRequest: true})
	})
	if allocations > 100 {
		t.Errorf("%v allocations for 1,000 roles that are aggregated to one", allocations)
	}
}
