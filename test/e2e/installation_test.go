package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

var workspacesFlag = flag.Int("workspaces", 45, "how many workspaces are created in TestWorkspacesLandOnAllShardsWhateverLeaderIsKilled; make long-scenarios: 90")

// entrance is a replica or a front.
type entrance interface {
	Name() string
	Kube(cluster string) kubernetes.Interface
	Dynamic(cluster string) dynamic.Interface
}

// eventually is a request that is made through one entrance after the other until one of them answers it.
func eventually[E entrance](t *testing.T, through []E, ask func(E) error) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for _, e := range through {
			if last = ask(e); last == nil {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("nobody answers: %v", last)
}

// create creates a Workspace. It may have been created by an attempt whose answer was lost.
func create[E entrance](t *testing.T, through []E, parent, name string) {
	t.Helper()
	eventually(t, through, func(e E) error {
		_, err := e.Dynamic(parent).Resource(harness.Workspaces).Create(t.Context(), harness.NewWorkspace(name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

var errNotReady = errors.New("it is not Ready")

// awaitReady waits until a Workspace is Ready, and returns its cluster and its shard.
func awaitReady[E entrance](t *testing.T, through []E, parent, name string) (cluster, shard string) {
	t.Helper()
	eventually(t, through, func(e E) error {
		ws, err := e.Dynamic(parent).Resource(harness.Workspaces).Get(t.Context(), name, metav1.GetOptions{})
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

// growth returns the tree of workspaces with all that has happened to it so far.
type growth func() *history.Tree

// record records what happens to the tree of workspaces, on all shards.
func record(t *testing.T, i *harness.Installation) growth {
	t.Helper()
	recorders := map[string]*history.Recorder{}
	for _, m := range i.All() {
		recorders[m.Name] = history.Record(t, m.Etcd.Client(t), "/registry")
	}
	return func() *history.Tree {
		t.Helper()
		events := map[string][]history.Event{}
		for shard, r := range recorders {
			events[shard] = r.Finish(t)
		}
		return history.Grow(events)
	}
}

// converged waits until nothing in the tree has to go on, and returns the tree.
func converged(t *testing.T, until growth) *history.Tree {
	t.Helper()
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(100 * time.Millisecond) {
		tree := until()
		left := tree.Unfinished()
		if len(left) > 0 && time.Now().Before(deadline) {
			continue
		}
		if len(left) > 0 {
			t.Errorf("what does not go on: %q", left)
		}
		if faults := tree.Faults(); len(faults) > 0 {
			t.Errorf("what must never be: %q", faults)
		}
		return tree
	}
}

// The leader of each shard is killed in turn while workspaces are created through fronts. None is lost, and none
// doubled.
func TestWorkspacesLandOnAllShardsWhateverLeaderIsKilled(t *testing.T) {
	t.Parallel()
	workspaces, creators := *workspacesFlag, 16
	i := harness.Install(t, "eu1", "us1")
	until := record(t, i)
	fronts := []*harness.Front{i.StartFront(), i.StartFront()}
	var next atomic.Int64
	var creating sync.WaitGroup
	began := make([]time.Time, workspaces+1)
	begin := func(first, last int) {
		next.Store(int64(first) - 1)
		for range creators {
			creating.Go(func() {
				for n := int(next.Add(1)); n <= last; n = int(next.Add(1)) {
					began[n] = time.Now()
					create(t, fronts, "root", fmt.Sprintf("ws-%d", n))
				}
			})
		}
	}
	many := workspaces * 3 / 4
	begin(1, many)
	for n, m := range i.All() {
		harness.Eventually(t, "a part of the workspaces was created", func() bool { return next.Load() > int64(n*workspaces/4) })
		leader := m.Leader(t)
		leader.Kill()
		leader.Again()
	}
	creating.Wait()
	for _, m := range i.All() { // who was not heard just when many came gets more of the others
		m.WaitHeard(t, len(i.Others))
	}
	begin(many+1, workspaces)
	creating.Wait()
	tree := converged(t, until)
	on, ready, all, slowest := map[string]int{}, tree.Ready(), 0, time.Duration(0)
	for _, shard := range tree.Clusters() {
		on[shard]++
		all++
	}
	for n := 1; n <= workspaces; n++ {
		slowest = max(slowest, ready[fmt.Sprintf("ws-%d", n)].Sub(began[n]))
	}
	t.Logf("%d workspaces, on each shard: %v; the slowest was Ready %v after its creation was asked for", all, on, slowest.Round(time.Millisecond))
	if all != workspaces {
		t.Errorf("%d workspaces have clusters, want %d", all, workspaces)
	}
	for _, m := range i.All() {
		if on[m.Name] < workspaces/6 {
			t.Errorf("shard %s has %d of %d workspaces", m.Name, on[m.Name], workspaces)
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
	harness.Eventually(t, "its Workspace is gone, too", func() bool {
		_, err := i.Root.Replicas[0].Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), "team", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := i.TryRegent("shard", "remove", "eu1"); err != nil {
		t.Error(err)
	}
}
