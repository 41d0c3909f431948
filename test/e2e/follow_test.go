package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/test/e2e/harness"
)

// writesAtRandom creates, changes and deletes ConfigMaps of a workspace until ctx ends, whatever fails.
func writesAtRandom(ctx context.Context, kube kubernetes.Interface) {
	for n := 0; ctx.Err() == nil; n++ {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", rand.IntN(40))}, Data: map[string]string{"n": fmt.Sprint(n)}} //nolint:gosec // a test
		maps := kube.CoreV1().ConfigMaps("default")
		if rand.IntN(3) == 0 { //nolint:gosec // a test
			_ = maps.Delete(ctx, cm.Name, metav1.DeleteOptions{}) // a replica may be dead
		} else if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			_, _ = maps.Update(ctx, cm, metav1.UpdateOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// storedAt returns the revision of each object that etcd had of a logical cluster, by key.
func storedAt(t *testing.T, etcd *clientv3.Client, cluster string, revision int64) map[string]int64 {
	t.Helper()
	all, err := etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, kv := range all.Kvs {
		if before, rest, ok := strings.Cut(string(kv.Key), "/"+cluster+"/"); ok {
			out[strings.TrimPrefix(before, "/registry/")+"/"+rest] = kv.ModRevision
		}
	}
	return out
}

// readBundle returns the revision of a bundle, and of each object in it.
func readBundle(t *testing.T, name string) (of bundle.Header, objects map[string]int64) {
	t.Helper()
	file, err := os.Open(name) //nolint:gosec // a test's own
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	all, err := bundle.Open(file, info.Size())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d bundles, %v", len(all), err)
	}
	objects = map[string]int64{}
	if err := all[0].Each(func(o bundle.Object) error { objects[o.Key] = o.Revision; return nil }); err != nil {
		t.Fatal(err)
	}
	return all[0].Header, objects
}

// offline runs a command that asks no server.
func offline(t *testing.T, args ...string) error {
	t.Helper()
	if out, err := harness.Command(t, "regent", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Replicas and who follows them are killed under writes. Whatever time is asked for, the backup has what etcd had at
// the revision that it names, and what was acknowledged more than some seconds before everything was lost.
func TestABackupHasWhatEtcdHadWhateverIsKilled(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	keys, directory := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	key := filepath.Join(keys, "backup.key")
	recipient, err := harness.Command(t, "regent", "backup", "key", key).Output()
	if err != nil {
		t.Fatal(err)
	}
	shard := harness.NewShard(etcd.URL)
	shard.Args = []string{"--backup-recipients=" + strings.TrimSpace(string(recipient))}
	a := shard.Start(t, "a")
	b := shard.Start(t, "b")
	b.WaitRoot()
	u := regentUser{t, filepath.Join(b.Root, "admin.kubeconfig")}
	u.must("ready", "ws", "create", "root:team", "--enter")
	follow := func() *harness.Process {
		return harness.Start(t, "backup", harness.Binary("regent"), "backup", "run", directory, "--kubeconfig="+filepath.Join(a.Root, "admin.kubeconfig"), "--server="+a.URL, "--base-every=1m", "--keep=1h")
	}
	kube, err := kubernetes.NewForConfig(b.AdminConfig("root:team"))
	if err != nil {
		t.Fatal(err)
	}
	following := follow()
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	for range 3 {
		writing.Go(func() { writesAtRandom(ctx, kube) })
	}
	harness.Eventually(t, "there is a base", func() bool {
		return offline(t, "backup", "inspect", directory) == nil
	})
	began := time.Now()
	for n := range 6 {
		<-time.After(time.Duration(500+rand.IntN(1500)) * time.Millisecond) //nolint:gosec // a test
		if n%2 == 0 {
			following.Signal(9)
			following.Wait()
			following = follow()
		} else {
			a.Signal(9)
			a.Wait()
			a.Again()
		}
	}
	a.WaitReady()
	harness.Eventually(t, "the backup is up to date", func() bool {
		return offline(t, "backup", "inspect", directory, "--max-age=2s", "--verify") == nil
	})
	stop()
	writing.Wait()
	last, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	harness.Eventually(t, "the last write is in it", func() bool {
		name := filepath.Join(keys, fmt.Sprint("last", time.Now().UnixNano()))
		if offline(t, "backup", "extract", directory, "root:team", "-f", name, "--identity="+key, "--unsealed") != nil {
			return false
		}
		_, objects := readBundle(t, name)
		return fmt.Sprint(objects["core/configmaps/default/last"]) == last.ResourceVersion
	})
	following.Signal(15)
	if code := following.Wait(); code != 0 {
		t.Errorf("the backup ended with %d", code)
	}
	seen, client := map[int64]bool{}, etcd.Client(t)
	for n := range 12 {
		at := began.Add(ended.Sub(began) * time.Duration(n) / 11)
		name := filepath.Join(keys, fmt.Sprint("at", n))
		if err := offline(t, "backup", "extract", directory, "root:team", "-f", name, "--identity="+key, "--unsealed", "--at="+at.Format(time.RFC3339Nano)); err != nil {
			t.Fatalf("at %v: %v", at, err)
		}
		of, got := readBundle(t, name)
		if want := storedAt(t, client, of.Cluster, of.Revision); !reflect.DeepEqual(got, want) {
			t.Errorf("at %v, revision %d: %v, want %v", at, of.Revision, got, want)
		}
		if len(got) < 2 || of.Time.After(at) {
			t.Errorf("at %v: %d objects of %v", at, len(got), of.Time)
		}
		seen[of.Revision] = true
	}
	if len(seen) < 6 {
		t.Errorf("the backup knows %d moments only", len(seen))
	}
}
