package server

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

func TestEachNamespaceHasAnAccountAndTheCA(t *testing.T) {
	c := startCatalogued(t, t.TempDir(), etcdtest.Start(t))
	u := &operator{t, c}
	u.until("root is Ready", u.rootIsReady)
	u.create("w")
	cluster := u.ready("w")
	ca, err := os.ReadFile(filepath.Join(c.root, pkiDirectory, pki.CACertFile))
	if err != nil {
		t.Fatal(err)
	}
	kube := c.shard.Clients.Kube
	within := in(u, cluster)
	if _, err := kube.CoreV1().Namespaces().Create(within, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "more"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has := func(ctx context.Context, namespace string) bool {
		_, err := kube.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		published, err2 := kube.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil && err2 == nil && published.Data["ca.crt"] == string(ca) && len(published.Data) == 1
	}
	for _, of := range []string{"root", "system:admin", cluster} {
		for _, namespace := range []string{"default", "kube-system"} {
			u.until(of+" has both in "+namespace, func() bool { return has(in(u, of), namespace) })
		}
	}
	u.until("a namespace of a user's has both", func() bool { return has(within, "more") })

	// Whatever becomes of them, they are there again.
	maps, accounts := kube.CoreV1().ConfigMaps("more"), kube.CoreV1().ServiceAccounts("more")
	for name, do := range map[string]func(*corev1.ConfigMap) error{
		"a deletion": func(*corev1.ConfigMap) error {
			if err := accounts.Delete(within, "default", metav1.DeleteOptions{}); err != nil {
				return err
			}
			return maps.Delete(within, "kube-root-ca.crt", metav1.DeleteOptions{})
		},
		"a change": func(m *corev1.ConfigMap) error {
			m.Data["ca.crt"] = "forged"
			_, err := maps.Update(within, m, metav1.UpdateOptions{})
			return err
		},
		"a change for ever": func(m *corev1.ConfigMap) error {
			m.Data["ca.crt"], m.Immutable = "forged", ptr.To(true)
			_, err := maps.Update(within, m, metav1.UpdateOptions{})
			return err
		},
	} {
		m, err := maps.Get(within, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := do(m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		u.until("both are there after "+name, func() bool { return has(within, "more") })
	}

	// A token of the account that was made by itself.
	request := &authenticationv1.TokenRequest{}
	if request, err = accounts.CreateToken(within, "default", request, metav1.CreateOptions{}); err != nil || request.Status.Token == "" {
		t.Errorf("no token of the default account: %v", err)
	}

	// What is there by itself does not keep a namespace or a workspace.
	if err := kube.CoreV1().Namespaces().Delete(within, "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	u.until("the namespace has gone", func() bool { return c.namespace(cluster, "more") == nil })
	if err := c.shard.Clients.Workspaces.Delete(in(u, "root"), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	u.until("the workspace has gone", func() bool {
		_, ok := c.shard.Informers.Workspaces.Get(clusters.Key{Cluster: clusters.Root, Name: "w"})
		return !ok
	})
	u.until("nothing is left in its cluster", func() bool {
		return len(c.shard.Informers.ConfigMaps.List(logicalcluster.Name(cluster))) == 0
	})
}
