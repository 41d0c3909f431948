package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/test/e2e/harness"
)

// encryptedReplica is a replica with an EncryptionConfiguration of its own.
type encryptedReplica struct {
	*harness.Replica
	file string
}

// have changes the file, and waits until the replica uses it, as its metric says.
func (r *encryptedReplica) have(t *testing.T, keys ...string) {
	t.Helper()
	content := encryptionBy(keys...)
	if err := os.WriteFile(r.file+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		t.Fatal(err)
	}
	hash := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	harness.Eventually(t, r.Name()+" uses the keys "+strings.Join(keys, ", "), func() bool {
		return r.MetricSum("apiserver_encryption_config_controller_last_config_info", hash) == 1
	})
}

// encryptionBy encrypts everything with the first of some keys.
func encryptionBy(keys ...string) []byte {
	var all []string
	for _, name := range keys {
		secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name[:1], 32)))
		all = append(all, fmt.Sprintf(`{"name": %q, "secret": %q}`, name, secret))
	}
	return fmt.Appendf(nil, `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
		{"resources": ["*.*"], "providers": [{"aesgcm": {"keys": [%s]}}]}]}`, strings.Join(all, ", "))
}

// A key is rotated in the four steps of docs/OPERATIONS.md, on one replica after the other, while users write, read and
// watch through both. No request fails, the term goes on, and a stranger's mistake in a file is told and changes
// nothing.
func TestAnEncryptionKeyIsRotatedUnderLoadWithoutARestart(t *testing.T) {
	t.Parallel() // most of it is waiting
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	shard.Timings = harness.Default
	var replicas []*encryptedReplica
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		if err := os.WriteFile(file, encryptionBy("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, &encryptedReplica{shard.Start(t, name, "--encryption-provider-config="+file), file})
	}
	a, b := replicas[0], replicas[1]
	leader, _ := harness.Leader(t, a.Replica, b.Replica)
	leader.CreateWorkspace("before")
	leader.WaitWorkspace("before")
	epoch := *leader.Lease().Spec.LeaseTransitions
	u := startUsers(t, a.Replica, b.Replica)
	watch := startKubectl(t, kubectl{b.Replica, "root"}, "default", "get", "namespaces", "-w")

	for _, keys := range [][]string{{"old", "new"}, {"new", "old"}} {
		a.have(t, keys...)
		b.have(t, keys...)
	}
	if err := os.WriteFile(a.file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the mistake is told", func() bool {
		status, body := a.Get("/readyz/encryption-config")
		return status == 500 && strings.Contains(body, a.file) && a.Status("/readyz") == 200
	})
	a.have(t, "new", "old")
	rewriteAll(t, a.Replica)
	harness.Eventually(t, "nothing in etcd needs the old key", func() bool { return len(notEncryptedBy(t, etcd, "new")) == 0 })
	for _, r := range replicas {
		r.have(t, "new")
	}
	leader.CreateWorkspace("after")
	leader.WaitWorkspace("after")
	b.Kubectl("root", "create", "namespace", "after-the-rotation")
	harness.Eventually(t, "the watch goes on", func() bool { return strings.Contains(watch.output.String(), "after-the-rotation") })

	u.finish()
	u.mustFindWhatTheyWrote(t)
	if n := failures(u.requests); n > 0 || len(u.requests) < 50 {
		t.Errorf("%d of %d requests failed", n, len(u.requests))
	}
	if now := *leader.Lease().Spec.LeaseTransitions; now != epoch {
		t.Errorf("the shard is led in epoch %d, and was in %d", now, epoch)
	}
	if left := notEncryptedBy(t, etcd, "new"); len(left) > 0 {
		t.Errorf("not encrypted with the new key: %q", left)
	}
	select {
	case err := <-watch.ended:
		t.Errorf("the watch ended: %v, %s", err, watch.output.String())
	default:
	}
}

// rewriteAll makes an update that changes nothing of each object in each logical cluster.
func rewriteAll(t *testing.T, r *harness.Replica) {
	t.Helper()
	lists, err := r.Kube("root").Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "patch") || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			rewrite(t, r, group.WithResource(resource.Name))
		}
	}
}

func rewrite(t *testing.T, r *harness.Replica, resource schema.GroupVersionResource) {
	t.Helper()
	all, err := r.Dynamic("*").Resource(resource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range all.Items {
		client, err := dynamic.NewForConfig(r.AdminConfig(object.GetAnnotations()["kcp.io/cluster"]))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resource(resource).Namespace(object.GetNamespace()).Patch(t.Context(), object.GetName(), types.MergePatchType, []byte("{}"), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s %s: %v", resource.Resource, object.GetName(), err)
		}
	}
}

// notEncryptedBy returns the keys in etcd whose values another key than that has encrypted.
func notEncryptedBy(t *testing.T, etcd *harness.Etcd, key string) (others []string) {
	t.Helper()
	resp, err := etcd.Client(t).Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) < 20 {
		t.Fatalf("%v, %v", resp, err)
	}
	for _, kv := range resp.Kvs {
		if !strings.HasPrefix(string(kv.Value), "k8s:enc:aesgcm:v1:"+key+":") && string(kv.Key) != "/registry/.shard" {
			others = append(others, fmt.Sprintf("%s: %.30q", kv.Key, kv.Value))
		}
	}
	return others
}
