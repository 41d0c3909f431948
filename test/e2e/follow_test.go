package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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
	if len(seen) < 3 { // a slow machine has no replica for most of the time
		t.Errorf("the backup knows %d moments only", len(seen))
	}
}

// objectsOf returns the objects of a workspace in a backup, by key, without their revisions.
func objectsOf(t *testing.T, directory, key, path string) map[string]string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bundle")
	if err := offline(t, "backup", "extract", directory, path, "-f", name, "--identity="+key, "--unsealed"); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(name) //nolint:gosec // a test's own
	if err != nil {
		t.Fatal(err)
	}
	all, err := bundle.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	if err := all[0].Each(func(o bundle.Object) error {
		out[o.Key] = fmt.Sprint(string(o.Object), o.Deleted, o.Unreadable)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// followed starts to follow a shard into a directory, and returns what ends it once the backup has what was written
// before.
func followed(t *testing.T, r *harness.Replica, directory string) (stop func()) {
	t.Helper()
	p := harness.Start(t, "backup", harness.Binary("regent"), "backup", "run", directory, "--kubeconfig="+filepath.Join(r.Root, "admin.kubeconfig"))
	return func() {
		since := time.Now()
		harness.Eventually(t, "the backup is up to date", func() bool {
			return offline(t, "backup", "inspect", directory, "--max-age="+time.Since(since).String()) == nil
		})
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(); code != 0 {
			t.Errorf("the backup ended with %d", code)
		}
	}
}

// A shard of which the etcd is lost is made again of its backup, in an empty one: objects of all kinds with their uids,
// and what is encrypted. Nobody serves from an etcd that is not full.
func TestAShardIsLoadedIntoAnEmptyEtcd(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	key, encryption := filepath.Join(files, "backup.key"), filepath.Join(files, "encryption.yaml")
	recipient, err := harness.Command(t, "regent", "backup", "key", key).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(encryption, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps]
  providers:
  - aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	shard.Args = []string{"--backup-recipients=" + strings.TrimSpace(string(recipient)), "--encryption-provider-config=" + encryption}
	r := shard.Start(t, "before")
	r.WaitRoot()
	u := regentUser{t, filepath.Join(r.Root, "admin.kubeconfig")}
	u.must("ready", "ws", "create", "root:team")
	mustKubectl(t, r, "root:team", referring, "apply", "-f", "-")
	harness.Eventually(t, "the definition is served", func() bool {
		_, err := tryKubectl(r, "root:team", "{apiVersion: example.org/v1, kind: Part, metadata: {name: p}, spec: {size: 1}}", "apply", "-f", "-")
		return err == nil
	})
	stop := followed(t, r, filepath.Join(files, "before"))
	mustKubectl(t, r, "root:team", "", "create", "secret", "generic", "late", "--from-literal=key=hidden")
	token := mustKubectl(t, r, "root:team", "", "-n", "app", "create", "token", "robot")
	const version = "-o=jsonpath={.metadata.resourceVersion}"
	secret, account := mustKubectl(t, r, "root:team", "", "get", "secret", "late", version), mustKubectl(t, r, "root:team", "", "get", "serviceaccount", "default", version)
	stop()
	r.Signal(syscall.SIGTERM)
	r.Wait()

	empty := harness.StartEtcd(t)
	flags := append([]string{"--root-directory=" + r.Root, "--etcd-servers=" + empty.URL}, shard.Args...)
	load := func(from string, flags ...string) error {
		return offline(t, append([]string{"backup", "load", filepath.Join(files, from), "--identity=" + key, "--"}, flags...)...)
	}
	if err := load("before", append(flags, "--shard-name=other")...); err == nil || !strings.Contains(err.Error(), "of shard root") {
		t.Errorf("a load as another shard: %v", err)
	}
	damage(t, filepath.Join(files, "before"), filepath.Join(files, "damaged"))
	if err := load("damaged", flags...); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a load of what is damaged: %v", err)
	}
	drill := func(of string) error {
		return offline(t, "backup", "drill", filepath.Join(files, of), "--identity="+key)
	}
	if err := drill("damaged"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a drill of what is damaged: %v", err)
	}
	if err := drill("before"); err != nil {
		t.Errorf("a drill: %v", err)
	}
	half := harness.NewShard(empty.URL)
	half.Args, half.Keys = shard.Args, filepath.Join(r.Root, "pki")
	refused := half.Launch(t, "half")
	if code := refused.Wait(); code != 1 || !strings.Contains(refused.Log(), "not loaded to its end") {
		t.Errorf("a replica on an etcd that is not full ended with %d", code)
	}
	if err := load("before", flags...); err == nil || !strings.Contains(err.Error(), "has keys below the prefix already") {
		t.Errorf("a load into an etcd that is not empty: %v", err)
	}
	if _, err := empty.Client(t).Delete(t.Context(), "/registry/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if err := load("before", flags...); err != nil {
		t.Fatal(err)
	}
	now := half.Start(t, "after")
	now.WaitRoot()
	u = regentUser{t, filepath.Join(now.Root, "admin.kubeconfig")}
	stop = followed(t, now, filepath.Join(files, "after"))
	mustKubectl(t, now, "root:team", "", "wait", "--for=jsonpath={.spec.size}=1", "part/p", "--timeout=60s")
	robot := rest.AnonymousClientConfig(now.AdminConfig("root:team"))
	robot.BearerToken = token
	kube, err := kubernetes.NewForConfig(robot)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := kube.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil || !strings.Contains(who.Status.UserInfo.Username, "robot") {
		t.Errorf("the token of before is of %v: %v", who, err)
	}
	// the latter is built in
	for what, before := range map[string]string{"secret/late": secret, "serviceaccount/default": account} {
		later, err := resourceversion.CompareResourceVersion(mustKubectl(t, now, "root:team", "", "get", what, version), before)
		if err != nil || later != 1 {
			t.Errorf("the version of %s is not later than before: %d, %v", what, later, err)
		}
	}
	u.must("ready", "ws", "create", "root:another")
	stop()
	for key, value := range encryptedIn(t, empty.Client(t), "/registry/core/secrets/") {
		if !strings.HasPrefix(value, "k8s:enc:aesgcm") {
			t.Errorf("%s is not encrypted", key)
		}
	}
	before, after := objectsOf(t, filepath.Join(files, "before"), key, "root:team"), objectsOf(t, filepath.Join(files, "after"), key, "root:team")
	delete(before, bundle.LogicalClusterKey) // it says that it has come
	delete(after, bundle.LogicalClusterKey)
	if !reflect.DeepEqual(before, after) || len(before) < 8 {
		t.Errorf("root:team has\n%v\nand had\n%v", after, before)
	}
}

// damage copies a backup, and changes the last byte of the last change.
func damage(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(to, "changes-*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%q, %v", names, err)
	}
	name := slices.Max(names)
	content, err := os.ReadFile(name) //nolint:gosec // a test's own
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// encryptedIn returns what is stored below a prefix.
func encryptedIn(t *testing.T, etcd *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	all, err := etcd.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil || len(all.Kvs) == 0 {
		t.Fatalf("%s: %d keys, %v", prefix, len(all.Kvs), err)
	}
	out := map[string]string{}
	for _, kv := range all.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}
