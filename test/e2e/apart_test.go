package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/test/e2e/harness"
)

// The shard of workspaces and the shard of their clusters are cut from each other, both ways or one way. Both serve.
// What needs the other waits, says why, and goes on soon when the cut ends. Nothing is doubled, and nothing deleted
// that nobody has deleted.
func TestShardsThatAreCutFromEachOtherServeAndWait(t *testing.T) {
	t.Parallel()
	i := harness.InstallApart(t, "eu1", "us1")
	until := record(t, i)
	a := &apart{t, i, []*harness.Front{i.StartFront()}, i.Others[0], i.Others[1]}
	for _, shard := range []string{"root", "us1"} { // so that clusters go to eu1
		if _, err := i.TryRegent("shard", "cordon", shard); err != nil {
			t.Fatal(err)
		}
	}
	between, eu1ToRoot := i.Between(i.Root, a.eu1), i.From(a.eu1, i.Root)
	const unheard, unbegun = "shard eu1, which has the logical cluster, is not heard", "shard eu1 is heard, and has not"
	for _, c := range []cut{
		{"refused", between.Cut, between.Resume, []*harness.ShardMember{i.Root, a.eu1}, "WorkspaceScheduled", "1 not heard", unheard},
		{"silent", between.Stall, between.Resume, []*harness.ShardMember{i.Root, a.eu1}, "WorkspaceScheduled", "1 not heard", unheard},
		{"one-way", eu1ToRoot.Cut, eu1ToRoot.Resume, []*harness.ShardMember{a.eu1}, "WorkspaceInitialized", unbegun, unbegun},
	} {
		a.goThrough(c)
	}
	tree := converged(t, until)
	if made, gone := tree.Count(); made == 0 || gone == 0 {
		t.Errorf("%d clusters were made, and %d have gone: this scenario shows nothing", made, gone)
	}
}

// cut is one between root and eu1.
type cut struct {
	name       string
	begin, end func()
	// deaf are those that do not hear the other. A new workspace of root, and one that is deleted, say why, the
	// former in condition.
	deaf           []*harness.ShardMember
	condition, why string
	deletion       string
}

// apart is an installation whose root shard and eu1 can be cut from each other.
type apart struct {
	*testing.T
	*harness.Installation
	front    []*harness.Front
	eu1, us1 *harness.ShardMember
}

// goThrough cuts, sees what goes on and what waits, and ends the cut.
func (a *apart) goThrough(c cut) {
	a.Helper()
	name := c.name
	stays, goes, waits := name+"-stays", name+"-goes", name+"-waits"
	for _, ws := range []string{stays, goes} {
		create(a.T, a.front, "root", ws)
		if _, shard := awaitReady(a.T, a.front, "root", ws); shard != "eu1" {
			a.Fatalf("%s is on shard %q", ws, shard)
		}
	}
	c.begin()
	heard := func(m *harness.ShardMember, peer string) bool {
		for _, r := range m.Replicas {
			if v, _ := r.Metric(fmt.Sprintf("regent_shards_heard{peer=%q}", peer)); v != 0 {
				return true
			}
		}
		return false
	}
	for _, m := range c.deaf {
		other := map[string]string{"root": "eu1", "eu1": "root"}[m.Name]
		harness.Eventually(a.T, m.Name+" does not hear "+other, func() bool { return !heard(m, other) })
	}

	create(a.T, a.front, "root", waits)
	a.says(waits, c.condition, c.why)
	if err := a.front[0].Dynamic("root").Resource(harness.Workspaces).Delete(a.Context(), goes, metav1.DeleteOptions{}); err != nil {
		a.Fatal(err)
	}
	a.says(goes, "WorkspaceContentDeleted", c.deletion)
	a.serves(name, "root", "root:"+stays, "root:"+goes)
	if !heard(a.us1, "root") || !heard(a.us1, "eu1") {
		a.Error("us1 does not hear both")
	}
	create(a.T, a.front, "root:"+stays, "below") // on eu1, where its cluster goes, too
	if _, shard := awaitReady(a.T, a.front, "root:"+stays, "below"); shard != "eu1" {
		a.Errorf("the workspace below is on shard %q", shard)
	}

	began := time.Now()
	c.end()
	if _, shard := awaitReady(a.T, a.front, "root", waits); shard != "eu1" {
		a.Errorf("%s is on shard %q", waits, shard)
	}
	harness.Eventually(a.T, goes+" has gone", func() bool {
		_, err := a.front[0].Dynamic("root").Resource(harness.Workspaces).Get(a.Context(), goes, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	a.Logf("%s: all has gone on %v after the end of the cut", name, time.Since(began).Round(time.Millisecond))
	a.serves(name+"-over", "root", "root:"+stays, "root:"+waits)
	if out, err := a.TryRegent("shard", "orphans", "-o", "json"); err != nil || strings.TrimSpace(out) != "[]" {
		a.Errorf("orphans: %s (%v)", out, err)
	}
}

// serves writes to clusters, and reads what was written.
func (a *apart) serves(name string, clusters ...string) {
	a.Helper()
	for _, cluster := range clusters {
		cms := a.front[0].Kube(cluster).CoreV1().ConfigMaps("default")
		_, err := cms.Create(a.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			_, err = cms.Get(a.Context(), name, metav1.GetOptions{})
		}
		if err != nil {
			a.Errorf("%s: users of %s notice: %v", name, cluster, err)
		}
	}
}

// says waits until a workspace of root says in a condition what it waits for.
func (a *apart) says(name, condition, why string) {
	a.Helper()
	last := ""
	defer func() {
		if a.Failed() {
			a.Logf("%s says %s", name, last)
		}
	}()
	harness.Eventually(a.T, fmt.Sprintf("%s says in %s: %s", name, condition, why), func() bool {
		ws, err := a.front[0].Dynamic("root").Resource(harness.Workspaces).Get(a.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		found, _, _ := unstructured.NestedSlice(ws.Object, "status", "conditions")
		last = fmt.Sprint(found)
		for _, c := range found {
			if c, _ := c.(map[string]any); c["type"] == condition && c["status"] == "False" && strings.Contains(fmt.Sprint(c["message"]), why) {
				return true
			}
		}
		return false
	})
}
