package regenttest

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func TestWorkspacesAreClustersOfTheirOwn(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := shared.Workspace(t, fmt.Sprintf("apart-%d", n))
			if want := fmt.Sprintf("root:apart-%d", n); w.Path != want || w.Cluster == "" || !strings.HasSuffix(w.Config.Host, "/clusters/"+want) {
				t.Errorf("it is %+v", w)
			}
			eventually(t, client(t, w.Config), "one")
			if all, err := client(t, shared.Config(w.Cluster)).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=one"}); err != nil || len(all.Items) != 1 {
				t.Errorf("by the cluster's name there are %v, %v", all, err)
			}
		})
	}
}

// A name can be used again by the next test, or by the same one with -count=2.
func TestAWorkspaceGoesWithItsTest(t *testing.T) {
	t.Parallel()
	var clusters []string
	for range 2 {
		t.Run("", func(t *testing.T) {
			clusters = append(clusters, shared.Workspace(t, "again").Cluster)
			shared.Workspace(t, "again:below")
		})
	}
	if clusters[0] == clusters[1] {
		t.Errorf("it is the same cluster: %q", clusters)
	}
}

func TestAUserMayDoWhatTheClusterLetsThem(t *testing.T) {
	t.Parallel()
	w := shared.Workspace(t, "users")
	alice, bob := client(t, shared.User(t, w.Config, "alice", "team")), client(t, shared.User(t, w.Config, "bob"))
	if err := write(t, alice, "refused", answerPatience); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"alice"`) {
		t.Errorf("at first: %v", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "team"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "team"}},
	}
	if _, err := client(t, w.Config).RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, alice, "allowed")
	if err := write(t, bob, "refused", answerPatience); !apierrors.IsForbidden(err) {
		t.Errorf("of another user: %v", err)
	}
}

func TestAKubeconfigIsAsItsConfig(t *testing.T) {
	t.Parallel()
	w := shared.Workspace(t, "kubeconfig")
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(t, w.Config))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, client(t, config), "hello")
	if config.Host != w.Config.Host {
		t.Errorf("it leads to %s", config.Host)
	}
}
