package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/test/e2e/harness"
)

// restored is an installation of two shards and a front, of which one is restored from a backup. Workspaces of root
// have their clusters on eu1.
type restored struct {
	*testing.T
	*harness.Installation
	eu1   *harness.ShardMember
	front *harness.Front
}

func installRestored(t *testing.T) *restored {
	t.Helper()
	i := harness.Install(t, "eu1")
	if _, err := i.TryRegent("shard", "cordon", "root"); err != nil {
		t.Fatal(err)
	}
	return &restored{t, i, i.Others[0], i.StartFront()}
}

// make creates workspaces in root, and a ConfigMap in each. It returns the clusters' names.
func (i *restored) make(names ...string) (clusters []string) {
	i.Helper()
	for _, name := range names {
		create(i.T, i.Root.Replicas, "root", name)
		cluster, _ := awaitReady(i.T, i.Root.Replicas, "root", name)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written-in-" + name}}
		if _, err := i.front.Kube("root:"+name).CoreV1().ConfigMaps("default").Create(i.Context(), cm, metav1.CreateOptions{}); err != nil {
			i.Fatal(err)
		}
		clusters = append(clusters, cluster)
	}
	return clusters
}

// remove deletes a workspace of root, and returns when it has gone.
func (i *restored) remove(name string) {
	i.Helper()
	workspaces := i.Root.Replicas[0].Dynamic("root").Resource(harness.Workspaces)
	if err := workspaces.Delete(i.Context(), name, metav1.DeleteOptions{}); err != nil {
		i.Fatal(err)
	}
	harness.Eventually(i.T, name+" has gone", func() bool {
		_, err := workspaces.Get(i.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// backup copies a shard's etcd, for which it is down.
func (i *restored) backup(m *harness.ShardMember) string {
	i.Helper()
	m.Kill()
	backup := m.Etcd.Copy(i.T)
	i.again(m)
	return backup
}

// restore puts a shard's etcd back to a backup, and starts its replicas anew.
func (i *restored) restore(m *harness.ShardMember, backup string) {
	i.Helper()
	m.Kill()
	m.Etcd.Restore(i.T, backup)
	m.Again(i.T)
	if harness.DefaultMode == harness.ForLife {
		i.forgetLeader(m)
	}
	i.waitHeard()
}

// forgetLeader does what a replica's log says: the backup has a leader for life, and who succeeded it has removed the
// file that proves its death. If it was killed before it did, there is nothing to forget.
func (i *restored) forgetLeader(m *harness.ShardMember) {
	i.Helper()
	r := m.Replicas[0]
	r.WaitReady()
	command := regexp.MustCompile(`command="regent (forget-replica \S+)"`)
	var told []string
	harness.Eventually(i.T, "a replica leads, or the log says which one to forget", func() bool {
		for _, line := range r.Lines("regent forget-replica") {
			told = command.FindStringSubmatch(line)
		}
		return told != nil || slices.ContainsFunc(m.Replicas, (*harness.Replica).Leads)
	})
	if told == nil {
		return
	}
	// m's own: there is a Lease in each shard
	args := append(strings.Fields(told[1]), "--kubeconfig="+i.Kubeconfig(), "--server="+r.URL)
	if out, err := harness.Command(i.T, "regent", args...).CombinedOutput(); err != nil {
		i.Fatalf("regent %s: %v\n%s", told[1], err, out)
	}
}

func (i *restored) again(m *harness.ShardMember) {
	i.Helper()
	m.Again(i.T)
	i.waitHeard()
}

// waitHeard waits until all shards hear each other.
func (i *restored) waitHeard() {
	i.Helper()
	for _, m := range i.All() {
		m.WaitHeard(i.T, len(i.Others))
	}
}

// orphans are the clusters that regent shard orphans lists, in order.
func (i *restored) orphans() (clusters []string) {
	i.Helper()
	out, err := i.TryRegent("shard", "orphans", "-o", "json")
	if err != nil {
		i.Fatal(err)
	}
	var listed []struct{ Cluster string }
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		i.Fatalf("%s: %v", out, err)
	}
	for _, o := range listed {
		clusters = append(clusters, o.Cluster)
	}
	slices.Sort(clusters)
	return clusters
}

func (i *restored) awaitOrphans(want ...string) {
	i.Helper()
	want = slices.Sorted(slices.Values(want)) // not in place: the caller knows which is which by its order
	harness.Eventually(i.T, strings.Join(append([]string{"the orphans are:"}, want...), " "), func() bool { return slices.Equal(i.orphans(), want) })
}

// has checks that a cluster answers through the front, by name or path, and has the ConfigMap of a workspace.
func (i *restored) has(cluster, name string) {
	i.Helper()
	if _, err := i.front.Kube(cluster).CoreV1().ConfigMaps("default").Get(i.Context(), "written-in-"+name, metav1.GetOptions{}); err != nil {
		i.Errorf("at %s: %v", cluster, err)
	}
}

// saysWhy waits until a workspace of root says that its cluster has disappeared, and what to do.
func (i *restored) saysWhy(name string) {
	i.Helper()
	harness.Eventually(i.T, name+" says that its cluster has disappeared", func() bool {
		ws, err := i.Root.Replicas[0].Dynamic("root").Resource(harness.Workspaces).Get(i.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		found, _, _ := unstructured.NestedSlice(ws.Object, "status", "conditions")
		for _, c := range found {
			condition, _ := c.(map[string]any)
			if condition["type"] == "WorkspaceInitialized" && condition["status"] == "False" && strings.Contains(condition["message"].(string), "has disappeared") {
				return true
			}
		}
		return false
	})
}

// I10: the parent's etcd goes back to an earlier backup, and then to a later one.
func TestClustersOutliveTheRestoreOfTheirParentsShardI10(t *testing.T) {
	t.Parallel()
	i := installRestored(t)
	clusters := i.make("old", "goes")
	early := i.backup(i.Root)
	young := i.make("young")[0]
	i.remove("goes")
	late := i.backup(i.Root)

	i.restore(i.Root, early)
	i.awaitOrphans(young)
	i.has(young, "young")
	i.has("root:young", "young")
	i.has("root:old", "old")
	i.saysWhy("goes") // it is back, and what it had is not
	if logicalClusters(t, i.eu1)[clusters[1]] {
		t.Error("eu1 has made a cluster anew whose content is lost")
	}
	i.remove("goes")
	second := i.make("new", "young") // what is created now is seen on eu1, though root's revisions have gone back
	i.awaitOrphans(young)
	i.has(young, "young")
	if _, err := i.front.Kube("root:young").CoreV1().ConfigMaps("default").Get(t.Context(), "written-in-young", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	i.restore(i.Root, late)
	i.awaitOrphans(second...)
	i.has("root:young", "young")
	i.has(second[0], "new")
}

// The child's etcd goes back to a backup. What it has lost is not made anew, and what it has again is not deleted.
func TestARestoredShardInventsNoClusterAndDeletesNone(t *testing.T) {
	t.Parallel()
	i := installRestored(t)
	clusters := i.make("stays", "goes")
	early := i.backup(i.eu1)
	young := i.make("young")[0]
	i.remove("goes")

	i.restore(i.eu1, early)
	i.saysWhy("young")
	i.awaitOrphans(clusters[1])
	i.has("root:stays", "stays")
	i.has(clusters[1], "goes")
	if logicalClusters(t, i.eu1)[young] {
		t.Error("eu1 has made a cluster anew whose content is lost")
	}
	if status, body := i.front.Get("/clusters/root:young/api/v1/namespaces"); status != http.StatusNotFound {
		t.Errorf("users of what is lost are told %d %s", status, body)
	}
	i.make("new")
	i.remove("young") // as its condition says
	i.make("young")
}
