package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/test/e2e/harness"
)

// eventually is a request that is made of one replica after the other until one of them answers it.
func eventually(t *testing.T, of []*harness.Replica, ask func(*harness.Replica) error) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for _, r := range of {
			if last = ask(r); last == nil {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("nobody answers: %v", last)
}

// create creates a Workspace through any of the replicas. It may have been created by an attempt whose answer was lost.
func create(t *testing.T, of []*harness.Replica, parent, name string) {
	t.Helper()
	eventually(t, of, func(r *harness.Replica) error {
		_, err := r.Dynamic(parent).Resource(harness.Workspaces).Create(t.Context(), harness.NewWorkspace(name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

var errNotReady = errors.New("it is not Ready")

// awaitReady waits until a Workspace is Ready, and returns its cluster and its shard.
func awaitReady(t *testing.T, of []*harness.Replica, parent, name string) (cluster, shard string) {
	t.Helper()
	eventually(t, of, func(r *harness.Replica) error {
		ws, err := r.Dynamic(parent).Resource(harness.Workspaces).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase"); phase != "Ready" {
			return fmt.Errorf("%s: %w: %v", name, errNotReady, ws.Object["status"])
		}
		cluster, _, _ = unstructured.NestedString(ws.Object, "spec", "cluster")
		shard = ws.GetLabels()["regent.dev/shard"]
		return nil
	})
	return cluster, shard
}

// The leader of each shard is killed in turn while workspaces are created. None is lost, and none doubled.
func TestWorkspacesLandOnAllShardsWhateverLeaderIsKilled(t *testing.T) {
	t.Parallel()
	const workspaces, creators = 90, 16
	i := harness.Install(t, "eu1", "us1")
	var next atomic.Int64
	var creating sync.WaitGroup
	for range creators {
		creating.Go(func() {
			for n := next.Add(1); n <= workspaces; n = next.Add(1) {
				create(t, i.Root.Replicas, "root", fmt.Sprintf("ws-%d", n))
			}
		})
	}
	for n, m := range i.All() {
		harness.Eventually(t, "a part of the workspaces was created", func() bool { return next.Load() > int64(n*workspaces/4) })
		leader := m.Leader(t)
		leader.Signal(syscall.SIGKILL)
		leader.Wait()
		leader.Again()
	}
	creating.Wait()
	on, clusters := map[string]int{}, map[string]string{}
	for n := 1; n <= workspaces; n++ {
		name := fmt.Sprintf("ws-%d", n)
		cluster, shard := awaitReady(t, i.Root.Replicas, "root", name)
		on[shard]++
		clusters[cluster] = shard
	}
	t.Logf("workspaces on each shard: %v", on)
	for _, m := range i.All() {
		if on[m.Name] < workspaces/6 {
			t.Errorf("shard %s has %d of %d workspaces", m.Name, on[m.Name], workspaces)
		}
		for cluster := range logicalClusters(t, m) {
			if cluster != "root" && clusters[cluster] != m.Name {
				t.Errorf("shard %s has cluster %s, which is %q's", m.Name, cluster, clusters[cluster])
			}
		}
	}
}

// logicalClusters returns the clusters of which a shard's etcd has LogicalClusters.
func logicalClusters(t *testing.T, m *harness.ShardMember) map[string]bool {
	t.Helper()
	const prefix = "/registry/core.kcp.io/logicalclusters/"
	resp, err := m.Etcd.Client(t).Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, kv := range resp.Kvs {
		cluster, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), prefix), "/")
		out[cluster] = true
	}
	return out
}

// I11: what is on a shard goes on, whichever other shard is down, the root shard too, and also after restarts.
func TestAShardGoesOnWithoutTheRootShardI11(t *testing.T) {
	t.Parallel()
	i := harness.Install(t, "eu1")
	eu1 := i.Others[0]
	if _, err := i.TryRegent("shard", "cordon", "root"); err != nil {
		t.Fatal(err)
	}
	create(t, i.Root.Replicas, "root", "team")
	cluster, shard := awaitReady(t, i.Root.Replicas, "root", "team")
	if shard != "eu1" {
		t.Fatalf("the workspace is on shard %q", shard)
	}
	for _, r := range i.Root.Replicas {
		r.Signal(syscall.SIGKILL)
		r.Wait()
	}
	i.Root.Etcd.Kill()

	goesOn := func(when string) {
		t.Helper()
		for _, r := range eu1.Replicas {
			for _, path := range []string{"root:team", cluster} {
				configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}
				if _, err := r.Kube(path).CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
					t.Errorf("%s: write at /clusters/%s of %s: %v", when, path, r.Name(), err)
				}
			}
		}
		name := strings.ReplaceAll(when, " ", "-")
		create(t, eu1.Replicas, "root:team", name)
		if _, shard := awaitReady(t, eu1.Replicas, "root:team", name); shard != "eu1" {
			t.Errorf("%s: a workspace below is on shard %q", when, shard)
		}
	}
	goesOn("root is down")
	for _, r := range eu1.Replicas {
		r.Signal(syscall.SIGKILL)
		r.Wait()
		r.Again()
		r.WaitReady()
	}
	eu1.Leader(t)
	goesOn("and all replicas were restarted")

	i.Root.Etcd.Start(t)
	for _, r := range i.Root.Replicas {
		r.Again()
	}
	i.Root.WaitHeard(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := i.Root.Replicas[0].Dynamic("root").Resource(harness.Workspaces).Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "nothing is left of it", func() bool { return len(logicalClusters(t, eu1)) == 0 })
	if _, err := i.TryRegent("shard", "remove", "eu1"); err != nil {
		t.Error(err)
	}
}

// I11, at the entrance: with any one shard down, users of all others notice nothing, and those of its clusters are told which it is.
func TestAFrontServesWhicheverShardIsDownI11(t *testing.T) {
	t.Parallel()
	const writes = 4 // through each front, to each shard
	i := harness.Install(t, "eu1", "us1")
	fronts := []*harness.Front{i.StartFront(), i.StartFront()}
	// A cluster on each shard, and users who write to it through either front.
	on := map[string]string{"root": "root"}
	for n := 0; len(on) < len(i.All()); n++ {
		name := fmt.Sprintf("ws-%d", n)
		create(t, i.Root.Replicas, "root", name)
		if _, shard := awaitReady(t, i.Root.Replicas, "root", name); on[shard] == "" {
			on[shard] = "root:" + name
		}
	}
	write := func(f *harness.Front, shard string) error {
		_, err := f.Kube(on[shard]).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
		return err
	}
	for _, down := range i.All() {
		for _, r := range down.Replicas {
			r.Signal(syscall.SIGKILL)
			r.Wait()
		}
		down.Etcd.Kill()
		for _, f := range fronts {
			if status, body := f.Get("/clusters/" + on[down.Name] + "/api/v1/namespaces"); status != http.StatusServiceUnavailable || !strings.Contains(body, "shard "+down.Name) {
				t.Errorf("%s is down, and its users are told %d %s", down.Name, status, body)
			}
			for _, m := range i.All() {
				for range writes {
					if m == down {
						break
					}
					if err := write(f, m.Name); err != nil {
						t.Errorf("%s is down, and users of %s notice: %v", down.Name, m.Name, err)
					}
				}
			}
		}
		down.Etcd.Start(t)
		for _, r := range down.Replicas {
			r.Again()
		}
		for _, m := range i.All() {
			m.WaitHeard(t, len(i.Others))
		}
		for _, f := range fronts {
			harness.Eventually(t, "users of "+down.Name+" are served again", func() bool { return write(f, down.Name) == nil })
		}
	}
}
