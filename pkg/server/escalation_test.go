package server

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/server/identity"
)

func TestNobodyGetsMoreThanTheyHaveByRolesAndBindings(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	ann, bob := s.as("ann", team).RbacV1(), s.as("bob", team).RbacV1()
	if _, err := ann.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "clerk"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
		{
			// * would have escalate and bind in it
			Verbs:     []string{"get", "list", "watch", "create", "update", "patch", "delete"},
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"},
		},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.ClusterRoleBindings().Create(t.Context(), toUser("clerk", "clerk", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the clerk works", func(ctx context.Context) error {
		_, err := bob.ClusterRoles().List(ctx, metav1.ListOptions{})
		return err
	})
	secrets := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}
	own := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"one"}}}
	if _, err := bob.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: own}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a role with what the clerk has: %v", err)
	}
	for what, do := range map[string]func() error{
		"a role with more": func() error {
			_, err := bob.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Rules: secrets}, metav1.CreateOptions{})
			return err
		},
		"a namespace's role with more": func() error {
			_, err := bob.Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Rules: secrets}, metav1.CreateOptions{})
			return err
		},
		"more for bob's own role": func() error {
			_, err := bob.ClusterRoles().Patch(t.Context(), "clerk", "application/merge-patch+json", []byte(`{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}`), metav1.PatchOptions{})
			return err
		},
		"more by applying": func() error {
			_, err := bob.ClusterRoles().Patch(t.Context(), "clerk", "application/apply-patch+yaml", []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"clerk"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`), metav1.PatchOptions{FieldManager: "bob", Force: ptr.To(true)})
			return err
		},
		"more by a put that creates": func() error {
			_, err := bob.ClusterRoles().Update(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "put"}, Rules: secrets}, metav1.UpdateOptions{})
			return err
		},
		"whatever others may get": func() error {
			_, err := bob.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{{}},
			}}, metav1.CreateOptions{})
			return err
		},
		"bob as the administrator": func() error {
			_, err := bob.ClusterRoleBindings().Create(t.Context(), toUser("me", "cluster-admin", "bob"), metav1.CreateOptions{})
			return err
		},
		"bob as the administrator of a namespace": func() error {
			_, err := bob.RoleBindings("default").Create(t.Context(), toUserIn("me", "admin", "bob"), metav1.CreateOptions{})
			return err
		},
		"bob as a subject of the creator's binding": func() error {
			_, err := bob.ClusterRoleBindings().Patch(t.Context(), "workspace-admin", "application/merge-patch+json", []byte(`{"subjects":[{"kind":"User","name":"bob"}]}`), metav1.PatchOptions{})
			return err
		},
	} {
		s.refused(what, do())
	}
	if _, err := bob.ClusterRoleBindings().Create(t.Context(), toUser("later", "later", "bob"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a binding to a role that does not exist: %v, want 404: whoever makes it later would decide what it gives", err)
	}
}

// An administrator of one cluster may impersonate anybody there, and is nobody elsewhere.
func TestImpersonationEndsAtTheClustersBorder(t *testing.T) {
	s := startSociety(t)
	own, other := s.founds("eve", "own"), s.founds("ann", "other")
	acting := func(who string, groups ...string) func(*rest.Config) {
		return func(c *rest.Config) { c.Impersonate = rest.ImpersonationConfig{UserName: who, Groups: groups} }
	}
	list := func(cluster string, change func(*rest.Config)) error {
		_, err := s.as("eve", cluster, change).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(own, acting("eve")); err != nil {
		t.Errorf("eve as eve in eve's own cluster: %v", err)
	}
	s.refused("eve as a user without rights", list(own, acting("nobody")))
	for range 3 { // nothing is remembered
		s.refused("eve as ann in ann's cluster", list(other, acting("ann")))
		s.refused("eve as ann in root", list("root", acting("ann")))
	}
	s.refused("eve as a member of system:masters", list(own, acting("eve", user.SystemPrivilegedGroup)))
	s.refused("eve as the leader", list(own, acting(identity.LeaderUser)))
	s.refused("eve as a replica, with its group", list(own, acting(identity.ReplicaUser, identity.ReservedPrefix+"x")))
	s.refused("eve as an account of another cluster", list(other, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default", Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"x"}}}
	}))
}
