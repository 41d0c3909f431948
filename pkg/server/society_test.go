package server

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	authenticatorunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/etcdtest"
)

// withPeople makes a server know users without rights, and a boss in system:masters, by tokens that are their names.
func withPeople(s *Server) {
	people := map[string]*user.DefaultInfo{"boss": {Name: "boss", Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}}
	for _, name := range []string{"ann", "bob", "eve"} {
		people[name] = &user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated, name + "s-friends"}}
	}
	s.generic.Authentication.Authenticator = authenticatorunion.New(authenticatorfactory.NewFromTokens(people, nil), s.generic.Authentication.Authenticator)
}

// society is a shard with users.
type society struct {
	*operator
	at *catalogued
}

func startSociety(t *testing.T, prepare ...func(*Server)) *society {
	t.Helper()
	c := startCatalogued(t, t.TempDir(), etcdtest.Start(t), append(prepare, withPeople)...)
	s := &society{&operator{t, c}, c}
	s.until("root is Ready", s.rootIsReady)
	return s
}

// as returns a client of a user for a cluster, by name or path. change may alter its configuration.
func (s *society) as(who, cluster string, change ...func(*rest.Config)) kubernetes.Interface {
	s.Helper()
	config := s.at.configOf(s.T, who, logicalcluster.Name(cluster))
	for _, f := range change {
		f(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// founds lets a user create a workspace of root, and returns its path once it is Ready.
func (s *society) founds(who, name string) string {
	s.Helper()
	s.letCreate(who)
	client, err := dynamic.NewForConfig(s.at.configOf(s.T, who, "root"))
	if err != nil {
		s.Fatal(err)
	}
	ws := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}}}
	s.until(who+" may create workspaces", func() bool {
		_, err := client.Resource(workspacesGVR).Create(s.Context(), ws, metav1.CreateOptions{})
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
			s.Fatal(err)
		}
		return err == nil
	})
	s.ready(name)
	return "root:" + name
}

func (s *society) letCreate(who string) {
	s.Helper()
	admin := s.at.adminIn(s.T, "root").RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "founder"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"create", "get"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspaces"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}}
	if _, err := admin.ClusterRoles().Create(s.Context(), role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
	if _, err := admin.ClusterRoleBindings().Create(s.Context(), toUser("founder-"+who, "founder", who), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
}

func toUser(name, role, who string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: who}},
	}
}

// toUserIn binds a user to a ClusterRole in a namespace.
func toUserIn(name, role, who string) *rbacv1.RoleBinding {
	b := toUser(name, role, who)
	return &rbacv1.RoleBinding{ObjectMeta: b.ObjectMeta, RoleRef: b.RoleRef, Subjects: b.Subjects}
}

func (s *society) refused(what string, err error) {
	s.Helper()
	if !apierrors.IsForbidden(err) {
		s.Errorf("%s: %v, want 403", what, err)
	}
}
