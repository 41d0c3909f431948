package assignment

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// step is the next thing to do for a logical cluster:
//
//	Workspace assigned -> create
//	Workspace deleted -> remove
//	Workspace absent, though its shard is heard -> ask that shard, and mark the cluster if so; never delete it (I10)
//	Workspace back -> found: take the mark away
//	Workspace moved to another shard with its own cluster -> follow it there
//	a new Workspace in its place that is to adopt the cluster, as an administrator says -> adopt it, then as above
type step string

const (
	nothing step = "nothing"
	create  step = "create"
	remove  step = "remove"
	ask     step = "ask for the owner of"
	found   step = "find the owner of"
	adopt   step = "give a new owner to"
	follow  step = "follow the owner of"
)

// world is everything that a decision depends on.
type world struct {
	// shard is the one that has the Workspace. heard says that its watches are open, so that the cache shows all of
	// it.
	shard string
	heard bool
	// workspace is the one that has been assigned the cluster. Nil: the cache shows none.
	workspace *tenancyv1alpha1.Workspace
	// logicalCluster is that of the cluster. Nil: there is none.
	logicalCluster *corev1alpha1.LogicalCluster
}

// decide is pure.
func decide(w world) step {
	ws, lc := w.workspace, w.logicalCluster
	switch {
	case lc == nil && (ws == nil || ws.DeletionTimestamp != nil || controllers.HasBegun(ws) || controllers.Adopts(ws)):
		return nothing
	case lc == nil:
		return create
	case clusters.IsComing(lc), clusters.HasMoved(lc), lc.DeletionTimestamp != nil:
		return nothing
	case lc.Labels[clusters.OwnerShardLabel] != w.shard && lc.Labels[clusters.OwnerShardLabel] != "" && ws != nil && controllers.Owns(ws, lc):
		return follow
	case lc.Labels[clusters.OwnerShardLabel] != w.shard:
		return nothing
	case ws != nil && !controllers.Owns(ws, lc) && mayAdopt(ws, w.shard, lc):
		return adopt
	case ws != nil && !controllers.Owns(ws, lc): // the shard of the Workspace tells of it
		return nothing
	case ws != nil && ws.DeletionTimestamp != nil:
		return remove
	case ws != nil && conditions.IsTrue(lc, clusters.ConditionOrphaned):
		return found
	case ws != nil, !w.heard, conditions.IsTrue(lc, clusters.ConditionOrphaned):
		return nothing
	case lc.Status.Phase == "", lc.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling:
		return nothing // whoever makes it Ready looks for the Workspace first
	default:
		return ask
	}
}

func mayAdopt(ws *tenancyv1alpha1.Workspace, shard string, lc *corev1alpha1.LogicalCluster) bool {
	return ws.DeletionTimestamp == nil && controllers.Adopts(ws) && controllers.AgainstAdoption(ws, shard, lc) == ""
}

// adopted returns lc with a new Workspace as its owner.
func adopted(lc *corev1alpha1.LogicalCluster, by *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	out.Spec.Owner.UID = by.UID
	return out
}

// orphaned returns lc with the mark.
func orphaned(lc *corev1alpha1.LogicalCluster, a assigned) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	conditions.Set(out, &v1alpha1.Condition{
		Type: clusters.ConditionOrphaned, Status: corev1.ConditionTrue, Reason: "WorkspaceAbsent",
		Message: fmt.Sprintf("shard %s has no Workspace %s with this cluster, and nobody has seen its deletion: adopt or delete it with regent shard orphans", a.shard, a.workspace),
	})
	return out
}

// unmarked returns lc without the mark.
func unmarked(lc *corev1alpha1.LogicalCluster) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	conditions.Delete(out, clusters.ConditionOrphaned)
	return out
}
