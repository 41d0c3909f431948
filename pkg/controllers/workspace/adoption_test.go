package workspace

import (
	"context"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// adopting is a Workspace that an administrator has created for an orphan.
func adopting(ws *tenancyv1alpha1.Workspace) { ws.Annotations[clusters.AdoptAnnotation] = "eu1/x7" }

// adoptive is a world of shard root.
func adoptive(w world) world {
	w.own = "root"
	return w
}

// orphan is the cluster of an earlier Workspace a, which root's etcd has lost.
func orphan(edits ...func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := strangers("Ready")
	lc.Labels = map[string]string{clusters.OwnerShardLabel: "root"}
	lc.Annotations["kcp.io/path"] = "root:a"
	*lc.Spec.Owner = corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "root", Name: "a", UID: "lost"}
	conditions.Set(lc, &v1alpha1.Condition{Type: clusters.ConditionOrphaned, Status: corev1.ConditionTrue})
	for _, edit := range edits {
		edit(lc)
	}
	return lc
}

func adoptedByUs(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.UID = "ws-uid" }
func find(lc *corev1alpha1.LogicalCluster)        { conditions.Delete(lc, clusters.ConditionOrphaned) }
func going(lc *corev1alpha1.LogicalCluster)       { lc.DeletionTimestamp = &deletedAt }

// foreign are orphans that Workspace a of root must not get, each with why.
var foreign = map[string]struct {
	edit func(*corev1alpha1.LogicalCluster)
	why  string
}{
	"no orphan":                    {find, "it is no orphan"},
	"being deleted":                {going, "it is being deleted"},
	"of another name":              {func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.Name = "b" }, "of another workspace"},
	"of another cluster":           {func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.Cluster = "x9" }, "of another workspace"},
	"of another kind of owner":     {func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.Resource = "things" }, "of another workspace"},
	"of nobody":                    {func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner = nil }, "of another workspace"},
	"of another shard's Workspace": {func(lc *corev1alpha1.LogicalCluster) { lc.Labels[clusters.OwnerShardLabel] = "us1" }, "of another workspace"},
	"of its own shard's Workspace": {func(lc *corev1alpha1.LogicalCluster) { lc.Labels = nil }, "of another workspace"},
	"at another path":              {func(lc *corev1alpha1.LogicalCluster) { lc.Annotations["kcp.io/path"] = "root:b" }, "its path is root:b, for ever, and not root:a"},
}

func TestAWorkspaceAdoptsTheClusterThatItHasLostAndNoOther(t *testing.T) {
	if got := adoption(fresh(adopting), "root", "root:a", true, orphan()); got.shard != "eu1" || got.adopted != "x7" || got.why != "it adopts logical cluster x7, which eu1 has" {
		t.Errorf("its own: %+v", got)
	}
	refused := func(t *testing.T, got placement, why string) {
		t.Helper()
		if got.shard != "" || got.adopted != "" || !strings.Contains(got.why, "it cannot adopt logical cluster x7 of shard eu1") || !strings.Contains(got.why, why) {
			t.Errorf("%+v, want a refusal because %q", got, why)
		}
	}
	refused(t, adoption(fresh(adopting), "root", "root:a", false, orphan()), "that shard is not heard")
	refused(t, adoption(fresh(adopting), "root", "root:a", true, nil), "that shard has no such cluster")
	for name, tc := range foreign {
		t.Run(name, func(t *testing.T) {
			refused(t, adoption(fresh(adopting), "root", "root:a", true, orphan(tc.edit)), tc.why)
		})
	}
}

func TestAnAdoptionIsOneWrite(t *testing.T) {
	got := scheduled(world{workspace: fresh(adopting), parent: parent("root"), placement: placement{shard: "eu1", why: "it adopts", adopted: "x7"}}, "https://front", "new")
	if got.Spec.Cluster != "x7" || got.Spec.URL != "https://front/clusters/root:a" || got.Labels[clusters.ShardLabel] != "eu1" || len(got.Finalizers) != 1 {
		t.Errorf("%+v", got)
	}
}

// liveOrphans answers as shard eu1 does.
type liveOrphans struct {
	controllers.ShardReader
	lc *corev1alpha1.LogicalCluster
}

func (l liveOrphans) LogicalCluster(context.Context, string, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if l.lc == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "cluster")
	}
	return l.lc, nil
}

// The cache may show an orphan that is none any more: another one than the Workspace's would be a cluster that two
// believe to be theirs.
func TestAnOrphanIsReadLiveBeforeItIsAdopted(t *testing.T) {
	worlds := map[string]*corev1alpha1.LogicalCluster{"gone": nil}
	for name, tc := range foreign {
		worlds[name] = orphan(tc.edit)
	}
	adopt := func(t *testing.T, live *corev1alpha1.LogicalCluster) (*tenancyv1alpha1.Workspace, int) {
		t.Helper()
		w := &writes{}
		workspaces := newStore(w, fresh(adopting))
		c := leader(t, workspaces, newStore(w, parent("root")))
		c.others.Live = liveOrphans{lc: live}
		cached := world{workspace: workspaces.objects[key], parent: parent("root"), placement: placement{shard: "eu1", why: "it adopts", adopted: "x7"}}
		if next, err := c.take(clusters.With(t.Context(), "root"), schedule, cached); next != nil || err != nil {
			t.Errorf("next %v, error %v", next, err)
		}
		return workspaces.objects[key], w.done
	}
	if ws, _ := adopt(t, orphan()); ws.Spec.Cluster != "x7" {
		t.Errorf("its own is not adopted: %+v", ws.Spec)
	}
	for name, live := range worlds {
		t.Run(name, func(t *testing.T) {
			if ws, writes := adopt(t, live); ws.Spec.Cluster != "" || writes != 0 {
				t.Errorf("%d writes, cluster %q", writes, ws.Spec.Cluster)
			}
		})
	}
}
