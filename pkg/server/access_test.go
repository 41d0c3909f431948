package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/server/status"
)

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
		t.Errorf("a stranger who discovers is not told why they are refused: %v, %q", err, said.String())
	}

	ann := s.as("ann", team).RbacV1()
	if _, err := ann.RoleBindings("default").Create(t.Context(), toUserIn("b", "view", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = bob.CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{})
	s.refused("somebody with a role who was not let in reads", err)
	if _, err := ann.ClusterRoleBindings().Create(t.Context(), toUser("bob-in", "system:kcp:workspace:access", "bob"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who was let in reads", func(ctx context.Context) error {
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
	eventually(t, "who was let in is out again", func(ctx context.Context) error {
		if _, err := bob.CoreV1().ConfigMaps("default").Get(ctx, "c", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("bob is not refused: %v", err) //nolint:errorlint // it may be nil
		}
		return nil
	})
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
	eventually(t, "bob reads all clusters", func(ctx context.Context) error {
		_, err := wildcard.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		return err
	})
	_, err = wildcard.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	s.refused("bob reads what bob's role does not have", err)
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
	eventually(t, "eve reads metrics", metrics)
	if err := s.as("eve", "").Discovery().RESTClient().Get().AbsPath("/debug/pprof/").Do(t.Context()).Error(); !apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "could not find") {
		t.Errorf("eve reads profiles: %v", err)
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
		eventually(t, what, func(ctx context.Context) error {
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
