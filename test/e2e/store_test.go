package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/test/e2e/harness"
)

// filesOf returns the content of each file of frames of a directory.
func filesOf(t *testing.T, directory string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(directory, "*.frames"))
	out := map[string]string{}
	for _, name := range names {
		text, failed := os.ReadFile(name) //nolint:gosec // a test's own
		out[filepath.Base(name)], err = string(text), errors.Join(err, failed)
	}
	if err != nil || len(out) == 0 {
		t.Fatalf("%d files, %v", len(out), err)
	}
	return out
}

// A real server of S3 is killed while a backup is copied to it, and so is who copies. Then the directory is lost. What
// is fetched is what the directory had, whole shards and workspaces are made of it, and the copy is continued from
// there, and from nowhere else.
func TestABackupOutlivesItsDirectoryInAStore(t *testing.T) {
	t.Parallel()
	etcd, store := harness.StartEtcd(t), harness.StartStore(t)
	at := store.URL + "/some/shard"
	directory := filepath.Join(t.TempDir(), "backup")
	key := filepath.Join(t.TempDir(), "backup.key")
	recipient, err := harness.Command(t, "regent", "backup", "key", key).Output()
	if err != nil {
		t.Fatal(err)
	}
	shard := harness.NewShard(etcd.URL)
	shard.Args = []string{"--backup-recipients=" + strings.TrimSpace(string(recipient))}
	a := shard.Start(t, "a")
	a.WaitRoot()
	regentUser{t, filepath.Join(a.Root, "admin.kubeconfig")}.must("ready", "ws", "create", "root:team", "--enter")
	kube, err := kubernetes.NewForConfig(a.AdminConfig("root:team"))
	if err != nil {
		t.Fatal(err)
	}
	arguments := func(directory string) []string {
		return []string{"backup", "run", directory, "--store=" + at, "--kubeconfig=" + filepath.Join(a.Root, "admin.kubeconfig"), "--server=" + a.URL, "--base-every=1m", "--keep=1h"}
	}
	inspect := func(more ...string) error {
		if out, err := store.Command("regent", append([]string{"backup", "inspect", at}, more...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	copies := store.StartWith("backup-1", harness.Binary("regent"), arguments(directory)...)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	writers.Go(func() { writesAtRandom(ctx, kube) })
	harness.Eventually(t, "the store has a base", func() bool { return inspect("--max-age=10s") == nil })
	store.Signal(9)
	store.Wait()
	written := func(name string) {
		t.Helper()
		if _, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the directory has what was written while the store is away", func() bool {
			_, ok := objectsOf(t, directory, key, "root:team")["core/configmaps/default/"+name]
			return ok
		})
	}
	written("away")
	if inspect() == nil {
		t.Error("a store that is down is inspected")
	}
	copies.Signal(9)
	copies.Wait()
	copies = store.StartWith("backup-2", harness.Binary("regent"), arguments(directory)...)
	written("again")
	store.Again()
	stop()
	writers.Wait()
	written("last")
	copies.Signal(15)
	if code := copies.Wait(); code != 0 {
		t.Errorf("the backup ended with %d", code)
	}
	want, objects := filesOf(t, directory), objectsOf(t, directory, key, "root:team")
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	if out, err := store.Command("regent", arguments(directory)...).CombinedOutput(); err == nil || !strings.Contains(string(out), "the store has another backup") {
		t.Errorf("a new directory is copied over what the lost one had: %v, %s", err, out)
	}

	fetched := filepath.Join(t.TempDir(), "fetched")
	if out, err := store.Command("regent", "backup", "fetch", at, fetched).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := filesOf(t, fetched)
	for name := range want { // a kill leaves a part of a frame at the end of a file
		if !strings.HasPrefix(want[name], got[name]) || len(want[name])-len(got[name]) > 1<<20 {
			t.Errorf("%s: %d bytes, want %d", name, len(got[name]), len(want[name]))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
	if err := offline(t, "backup", "inspect", fetched, "--verify"); err != nil {
		t.Error(err)
	}
	if now := objectsOf(t, fetched, key, "root:team"); !reflect.DeepEqual(now, objects) || now["core/configmaps/default/last"] == "" {
		t.Errorf("%d objects, want %d", len(now), len(objects))
	}

	copies = store.StartWith("backup-3", harness.Binary("regent"), arguments(fetched)...)
	if _, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "continued"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the copy is continued", func() bool {
		again := filepath.Join(t.TempDir(), "again")
		if out, err := store.Command("regent", "backup", "fetch", at, again).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, ok := objectsOf(t, again, key, "root:team")["core/configmaps/default/continued"]
		return ok
	})
	copies.Signal(15)
	if code := copies.Wait(); code != 0 {
		t.Errorf("the backup ended with %d", code)
	}
}
