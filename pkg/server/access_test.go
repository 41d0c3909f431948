package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	authenticatorunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/server/status"
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

func startSociety(t *testing.T) *society {
	t.Helper()
	c := startCatalogued(t, t.TempDir(), startEtcd(t), withPeople)
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

// eventually waits until a call succeeds: rights that were given a moment ago may not have reached the replica.
func (s *society) eventually(what string, do func(context.Context) error) {
	s.Helper()
	var last error
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if last = do(s.Context()); last == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s: %v", what, last)
		}
	}
}

func (s *society) refused(what string, err error) {
	s.Helper()
	if !apierrors.IsForbidden(err) {
		s.Errorf("%s: %v, want 403", what, err)
	}
}

// I14: a user sees and does in a cluster what its RBAC allows.
func TestWhoCreatesAWorkspaceDecidesWhoElseMayEnterItI14(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	// At once: what the replica's caches do not have yet is read from storage.
	if _, err := s.as("ann", team).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("its creator cannot use a workspace that is Ready: %v", err)
	}
	bob := s.as("bob", team)
	_, err := bob.CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{})
	s.refused("a stranger reads", err)
	_, ofNone := s.as("bob", "root:none").CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{})
	if err.Error() != ofNone.Error() {
		t.Errorf("a stranger learns that a workspace exists: %q, and %q where there is none", err, ofNone)
	}
	_, err = bob.Discovery().ServerVersion() // public
	if err != nil {
		t.Errorf("the version is not public: %v", err)
	}
	_, err = bob.Discovery().ServerResourcesForGroupVersion("v1")
	s.refused("a stranger discovers", err)
	// client-go does not show the body of such a refusal, but warnings.
	var said strings.Builder
	warned := s.as("bob", team, func(c *rest.Config) { c.WarningHandler = rest.NewWarningWriter(&said, rest.WarningWriterOptions{}) })
	if _, err := warned.Discovery().ServerGroups(); err == nil || !strings.Contains(said.String(), "you may not enter it") {
		t.Errorf("a stranger who discovers is not told why he is refused: %v, %q", err, said.String())
	}

	ann := s.as("ann", team).RbacV1()
	view := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}}}
	if _, err := ann.RoleBindings("default").Create(t.Context(), view, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = bob.CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{})
	s.refused("somebody with a role who was not let in reads", err)
	if _, err := ann.ClusterRoleBindings().Create(t.Context(), toUser("bob-in", "system:kcp:workspace:access", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("who was let in reads", func(ctx context.Context) error {
		_, err := bob.CoreV1().ConfigMaps("default").Get(ctx, "c", metav1.GetOptions{})
		return err
	})
	if _, err := bob.Discovery().ServerResourcesForGroupVersion("v1"); err != nil {
		t.Errorf("who was let in cannot discover: %v", err)
	}
	_, err = bob.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{})
	s.refused("in another namespace", err)
	s.refused("a viewer deletes", bob.CoreV1().ConfigMaps("default").Delete(t.Context(), "c", metav1.DeleteOptions{}))

	if err := ann.ClusterRoleBindings().Delete(t.Context(), "bob-in", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("who was let in is out again", func(ctx context.Context) error {
		if _, err := bob.CoreV1().ConfigMaps("default").Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			return context.DeadlineExceeded
		}
		return nil
	})
}

func TestNobodyGetsMoreThanHeHasByRolesAndBindings(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	ann, bob := s.as("ann", team).RbacV1(), s.as("bob", team).RbacV1()
	if _, err := ann.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "clerk"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
		{Verbs: []string{"*"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The verb * has escalate and bind in it. A clerk must not have those.
	clerk, err := ann.ClusterRoles().Get(t.Context(), "clerk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clerk.Rules[1].Verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	if _, err := ann.ClusterRoles().Update(t.Context(), clerk, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.ClusterRoleBindings().Create(t.Context(), toUser("clerk", "clerk", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the clerk works", func(ctx context.Context) error {
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
		"more for his own role": func() error {
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
		"himself the administrator": func() error {
			_, err := bob.ClusterRoleBindings().Create(t.Context(), toUser("me", "cluster-admin", "bob"), metav1.CreateOptions{})
			return err
		},
		"himself the administrator of a namespace": func() error {
			_, err := bob.RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "me"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}},
			}, metav1.CreateOptions{})
			return err
		},
		"himself a subject of the creator's binding": func() error {
			_, err := bob.ClusterRoleBindings().Patch(t.Context(), "workspace-admin", "application/merge-patch+json", []byte(`{"subjects":[{"kind":"User","name":"bob"}]}`), metav1.PatchOptions{})
			return err
		},
	} {
		s.refused(what, do())
	}
	for what, err := range map[string]error{
		"a role that does not exist": func() error {
			_, err := bob.ClusterRoleBindings().Create(t.Context(), toUser("later", "later", "bob"), metav1.CreateOptions{})
			return err
		}(),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("a binding to %s: %v, want 404: whoever makes it later would decide what it gives", what, err)
		}
	}
}

// An administrator of one cluster may impersonate whomever he likes there, and is nobody elsewhere.
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
		t.Errorf("eve as herself in her own cluster: %v", err)
	}
	s.refused("eve as a user without rights", list(own, acting("nobody")))
	for range 3 { // nothing is remembered
		s.refused("eve as ann in ann's cluster", list(other, acting("ann")))
		s.refused("eve as ann in root", list("root", acting("ann")))
	}
	s.refused("eve as a member of system:masters", list(own, acting("eve", user.SystemPrivilegedGroup)))
	s.refused("eve as the leader", list(own, acting(leaderUser)))
	s.refused("eve as a replica, with its group", list(own, acting(replicaUser, reservedPrefix+"x")))
	s.refused("eve as an account of another cluster", list(other, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:default", Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"x"}}}
	}))
}

func TestReadsOverAllClustersAreARightOfTheirOwn(t *testing.T) {
	s := startSociety(t)
	s.founds("ann", "team")
	admin := s.at.adminIn(t, "system:admin").RbacV1()
	wildcard := s.as("bob", "*")
	_, err := s.as("ann", "*").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	s.refused("an administrator of one cluster reads all", err)
	if _, err := admin.ClusterRoleBindings().Create(t.Context(), toUser("bob", "view", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("bob reads all clusters", func(ctx context.Context) error {
		_, err := wildcard.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		return err
	})
	_, err = wildcard.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	s.refused("bob reads what his role does not have", err)
	_, err = s.as("bob", "system:admin").CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	s.refused("bob enters system:admin", err)
	_, err = s.as("bob", "root:team").CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	s.refused("bob enters a cluster", err)

	metrics := func(ctx context.Context) error {
		return s.as("eve", "").Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Error()
	}
	doing := func(ctx context.Context) error {
		return s.as("eve", "").Discovery().RESTClient().Get().AbsPath(status.InstallationPath).Do(ctx).Error()
	}
	s.refused("eve reads metrics", metrics(t.Context()))
	s.refused("eve reads how the installation is doing", doing(t.Context()))
	if _, err := admin.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/regent/v1/*"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ClusterRoleBindings().Create(t.Context(), toUser("eve", "scraper", "eve"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("eve reads metrics", metrics)
	s.eventually("eve reads how the installation is doing", doing)
	if err := s.as("eve", "").Discovery().RESTClient().Get().AbsPath("/debug/pprof/").Do(t.Context()).Error(); !apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "could not find") {
		t.Errorf("eve reads profiles: %v", err)
	}
}

func TestUsersAskWhatTheyMayDo(t *testing.T) {
	s := startSociety(t)
	team := s.founds("ann", "team")
	ann := s.as("ann", team)
	view := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}}}
	if _, err := ann.RbacV1().RoleBindings("default").Create(t.Context(), view, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.RbacV1().ClusterRoleBindings().Create(t.Context(), toUser("bob-in", "system:kcp:workspace:access", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bob := s.as("bob", team)
	in := func(namespace, verb, resource string) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: resource}
	}
	s.eventually("bob may read", func(ctx context.Context) error {
		_, err := bob.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	})
	for _, c := range []struct {
		of   *authorizationv1.ResourceAttributes
		want bool
	}{
		{in("default", "get", "configmaps"), true},
		{in("default", "delete", "configmaps"), false},
		{in("default", "get", "secrets"), false},
		{in("kube-system", "get", "configmaps"), false},
	} {
		own, err := bob.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: c.of},
		}, metav1.CreateOptions{})
		if err != nil || own.Status.Allowed != c.want {
			t.Errorf("bob, of himself, %+v: %+v (%v), want %t", c.of, own.Status, err, c.want)
		}
		spec := authorizationv1.SubjectAccessReviewSpec{User: "bob", Groups: []string{user.AllAuthenticated}, ResourceAttributes: c.of}
		of, err := ann.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || of.Status.Allowed != c.want {
			t.Errorf("ann, of bob, %+v: %+v (%v), want %t", c.of, of.Status, err, c.want)
		}
		local, err := ann.AuthorizationV1().LocalSubjectAccessReviews(c.of.Namespace).Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.of.Namespace}, Spec: spec,
		}, metav1.CreateOptions{})
		if err != nil || local.Status.Allowed != c.want {
			t.Errorf("ann, of bob, in %s: %+v (%v), want %t", c.of.Namespace, local.Status, err, c.want)
		}
	}
	_, err := bob.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: in("default", "get", "secrets")},
	}, metav1.CreateOptions{})
	s.refused("bob asks about ann", err)
	_, err = ann.AuthorizationV1().LocalSubjectAccessReviews("default").Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", ResourceAttributes: in("kube-system", "get", "secrets")},
	}, metav1.CreateOptions{})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a local review of another namespace: %v", err)
	}
	rules, err := bob.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil || rules.Status.Incomplete || len(rules.Status.ResourceRules) < 5 || len(rules.Status.NonResourceRules) != 2 {
		t.Errorf("bob's rules are %+v (%v)", rules.Status, err)
	}
	for _, rule := range rules.Status.ResourceRules {
		if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Verbs, "delete") {
			t.Errorf("bob is told that he may %+v", rule)
		}
	}
	who, err := bob.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "bob" {
		t.Errorf("bob is %+v (%v)", who.Status, err)
	}
}

// A role with an aggregation rule is filled, and a user's own rules in it do not stay.
func TestAnAggregatedRoleFollowsThoseThatItSelects(t *testing.T) {
	s := startSociety(t)
	ann := s.as("ann", s.founds("ann", "team")).RbacV1().ClusterRoles()
	x := map[string]string{"x": "1"}
	rules := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}}}
	}
	for _, role := range []*rbacv1.ClusterRole{
		{ObjectMeta: metav1.ObjectMeta{Name: "all"}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: x}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "part", Labels: x}, Rules: rules("secrets")},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Rules: rules("events")},
	} {
		if _, err := ann.Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(what string, want []rbacv1.PolicyRule) {
		t.Helper()
		s.eventually(what, func(ctx context.Context) error {
			all, err := ann.Get(ctx, "all", metav1.GetOptions{})
			if err == nil && !equality.Semantic.DeepEqual(all.Rules, want) {
				err = fmt.Errorf("its rules are %v, want %v", all.Rules, want)
			}
			return err
		})
	}
	has("what was made after it is taken in", rules("secrets"))
	if _, err := ann.Patch(t.Context(), "all", "application/merge-patch+json", []byte(`{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	has("what a user wrote is overwritten", rules("secrets"))
	if _, err := ann.Patch(t.Context(), "part", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	has("what is not selected any more goes", nil)
}
