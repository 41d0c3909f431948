package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/e2e/harness"
)

// With what is stored encrypted, the Lease itself among it, a leader works, and a deposed one is refused, as ever.
func TestAnEncryptedShardFences(t *testing.T) {
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	encryption := fmt.Sprintf(`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
		{"resources": ["*.*"], "providers": [{"aescbc": {"keys": [{"name": "one", "secret": %q}]}}]}]}`, key)
	if err := os.WriteFile(file, []byte(encryption), 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	shard.Args = []string{"--encryption-provider-config=" + file}
	a := shard.Start(t, "a")
	b := shard.Start(t, "b")
	leader, others := harness.Leader(t, a, b)
	leader.CreateWorkspace("works")
	leader.WaitWorkspace("works")

	stale := fence.OfLease(leader.Lease())
	handOver(t, leader, others[0])
	live := fence.OfLease(leader.Lease())
	for token, fenced := range map[fence.Token]bool{stale: true, live: false} {
		config := leader.Config("root")
		config.Wrap(fence.Transport(fence.Of(token)))
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		if fence.IsFenced(err) != fenced || !fenced && err != nil {
			t.Errorf("the token of %v: %v", token, err)
		}
	}
	for _, prefix := range []string{"/registry/.probe-secret", "/registry/coordination.k8s.io/leases/", "/registry/core/configmaps/", "/registry/tenancy.kcp.io/workspaces/"} {
		resp, err := etcd.Client(t).Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) == 0 {
			t.Fatalf("%s: %v, %v", prefix, resp, err)
		}
		for _, kv := range resp.Kvs {
			if !strings.HasPrefix(string(kv.Value), "k8s:enc:aescbc:v1:one:") {
				t.Errorf("%s is stored as %.30q", kv.Key, kv.Value)
			}
		}
	}
}
