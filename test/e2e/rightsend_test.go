package e2e

import (
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// viewer lets a user into a cluster as a viewer.
func viewer(t *testing.T, in kubernetes.Interface, who string) (bindings []string) {
	t.Helper()
	bindings, err := harness.Bind(t.Context(), in, harness.User(who), "system:kcp:workspace:access", "view")
	if err != nil {
		t.Fatal(err)
	}
	return bindings
}

// A right that was taken away ends at each replica within moments, and a watch that is open goes on: docs/ACCESS.md
// says what to do. The owner of a workspace has nothing in another one that is made under its path later.
func TestWhatWasTakenAwayEndsAtEachReplica(t *testing.T) {
	t.Parallel() // most of it is waiting
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Timings = harness.Default
	shard.Args = []string{"--token-auth-file=" + write(t, "tokens.csv", "ann,ann,1\n")}
	replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	leader, _ := harness.Leader(t, replicas...)
	leader.WaitRoot()
	leader.CreateWorkspace("team")
	first := leader.WaitWorkspace("team")
	const path = "root:team"
	admin := leader.Kube(path)
	bindings := viewer(t, admin, "ann")
	watches := map[*harness.Replica]<-chan string{}
	for _, r := range replicas {
		config := rest.AnonymousClientConfig(r.Config(path))
		config.BearerToken = "ann"
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "ann is let in at "+r.Name(), func() bool {
			_, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err == nil
		})
		watches[r] = names(t, client)
	}
	began := time.Now()
	for _, name := range bindings {
		if err := admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b := newBearer(t, filepath.Join(leader.Root, "pki", "ca.crt"), "")
	for _, r := range replicas {
		b.url = r.URL
		b.until(harness.Patience, "ann", path, http.StatusForbidden)
		t.Logf("refused at %s %v after the right was taken away", r.Name(), time.Since(began).Round(time.Millisecond))
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for r, seen := range watches {
		for name := ""; name != "later"; {
			select {
			case name = <-seen:
			case <-time.After(harness.Patience):
				t.Fatalf("a watch that was open at %s has ended: say so in docs/ACCESS.md", r.Name())
			}
		}
	}

	// The workspace is deleted, and another one made under its path.
	viewer(t, admin, "ann")
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	workspaces := leader.Dynamic("root").Resource(harness.Workspaces)
	if err := workspaces.Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the workspace is gone", func() bool {
		_, err := workspaces.Get(t.Context(), "team", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	leader.CreateWorkspace("team")
	second := leader.WaitWorkspace("team")
	if first == second {
		t.Fatalf("the new workspace has the cluster of the old one, %s", first)
	}
	for _, r := range replicas {
		b.url = r.URL
		for _, cluster := range []string{path, first, second} {
			b.until(harness.Patience, "ann", cluster, http.StatusForbidden)
			b.until(harness.Patience, token.Status.Token, cluster, http.StatusUnauthorized)
		}
	}
}

// names tells the names of the ConfigMaps that a watch shows, from now until the test ends.
func names(t *testing.T, client kubernetes.Interface) <-chan string {
	t.Helper()
	shown, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 100)
	var reading sync.WaitGroup
	reading.Go(func() {
		for event := range shown.ResultChan() {
			if cm, ok := event.Object.(*corev1.ConfigMap); ok {
				select {
				case out <- cm.Name:
				case <-t.Context().Done():
				}
			}
		}
	})
	t.Cleanup(func() {
		shown.Stop()
		reading.Wait()
	})
	return out
}
