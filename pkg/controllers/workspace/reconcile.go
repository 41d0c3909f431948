package workspace

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// step is the next thing to do for a Workspace. After each step, the next is decided anew, by this leader or by
// another:
//
//	new -> schedule (finalizer, shard, cluster, URL: one write) -> create LogicalCluster -> confirm -> report phase
//	deleted -> remove LogicalCluster -> confirm that it is gone -> release (finalizer removed)
//
// Most Workspaces whose cluster is on this shard are created and deleted in one transaction with it (Pairs), and
// nothing is left to do.
//
// If another shard has the cluster, it creates and removes the LogicalCluster itself: it watches the Workspace. This
// shard watches the LogicalCluster in turn, and follows if that is deleted by itself.
//
// An administrator may tell a Workspace to adopt a cluster that has lost its own. Then schedule assigns that one, and
// its shard gives it its new owner.
//
// If the cluster has moved to another shard, as the shard says that had it, relocate writes where it is. So it does if
// an administrator says that it is on another shard again, because that shard has lost it.
//
// What lasts is reported meanwhile: initializers that are left, content that cannot be deleted.
type step string

const (
	nothing  step = "nothing"
	relocate step = "relocate"
	schedule step = "schedule"
	create   step = "create"
	confirm  step = "confirm"
	report   step = "report"
	remove   step = "remove"
	follow   step = "follow"
	release  step = "release"
)

// world is everything that a decision depends on.
type world struct {
	workspace *tenancyv1alpha1.Workspace
	// logicalCluster is the one that spec.cluster names. Nil: there is none.
	logicalCluster *corev1alpha1.LogicalCluster
	// parent is the LogicalCluster of the cluster that has the Workspace. Nil: there is none.
	parent *corev1alpha1.LogicalCluster
	// shard is the name of the shard that has the logicalCluster, or will have it. elsewhere says that it is
	// another one, and heard that this one hears it.
	shard            string
	elsewhere, heard bool
	// movedTo is the shard to which the cluster has moved, as its former one says, or an administrator. Empty: it
	// has not.
	movedTo string
	// overdue says that the other shard, though it is heard, has not begun for a while with what it is awaited for,
	// or that the LogicalCluster has been missing for a while.
	overdue bool
	// own is the name of this shard.
	own string
	// placement is where the cluster of a Workspace goes that has none.
	placement placement
	// confirmed says that the server has been asked for logicalCluster, or for parent if spec.cluster is empty.
	// Until then they are from caches, one of which may be ahead of the other.
	confirmed bool
}

// decide is pure. A write is guarded only by the resourceVersion of the object that it changes. Therefore, before a
// write that depends on another object, or on its absence, that object is read from the server. For create, the server
// compares the Workspace in the transaction.
func decide(w world) step {
	ws := w.workspace
	managed := slices.Contains(ws.Finalizers, clusters.WorkspaceFinalizer)
	switch {
	case ws.DeletionTimestamp != nil && !managed:
		return nothing
	case w.movedTo != "":
		return relocate
	case w.elsewhere && !w.heard:
		return w.unheard()
	case ws.DeletionTimestamp != nil && !w.owned() && ws.Spec.Cluster != "" && !w.confirmed:
		return confirm
	case ws.DeletionTimestamp != nil && !w.owned():
		return release
	case ws.DeletionTimestamp != nil && w.logicalCluster.DeletionTimestamp == nil && w.elsewhere:
		return w.await() // its shard sees the deletion
	case ws.DeletionTimestamp != nil && w.logicalCluster.DeletionTimestamp == nil:
		return remove
	case w.elsewhere && w.owned() && w.logicalCluster.DeletionTimestamp != nil && ws.DeletionTimestamp == nil && !w.confirmed:
		return confirm
	case w.elsewhere && w.owned() && w.logicalCluster.DeletionTimestamp != nil && ws.DeletionTimestamp == nil:
		return follow
	case ws.DeletionTimestamp != nil, ws.Spec.Mount != nil:
		return w.report()
	case ws.Spec.Cluster == "" && w.homeless():
		return w.report()
	case w.parent == nil && !w.homeless() && (ws.Spec.Cluster == "" || ws.Spec.URL == "" || w.logicalCluster == nil && !controllers.HasBegun(ws)):
		return nothing // wait for the parent's LogicalCluster: the path, which is permanent, derives from it
	case ws.Spec.Cluster == "" && w.placement.shard == "":
		return w.report()
	case ws.Spec.Cluster == "", ws.Spec.URL == "", !managed:
		return schedule
	case controllers.Adopts(ws) && w.logicalCluster != nil && controllers.AgainstAdoption(ws, w.own, w.logicalCluster) == "":
		return nothing // its shard sees the Workspace
	case controllers.Adopts(ws):
		return w.report()
	case w.misses() && !w.confirmed && !w.overdue:
		return nothing
	case w.logicalCluster == nil && !controllers.HasBegun(ws) && w.elsewhere:
		return w.await() // its shard sees the Workspace
	case w.logicalCluster == nil && !controllers.HasBegun(ws):
		return create
	default:
		return w.report()
	}
}

// unheard returns the next step while the shard that has the cluster is not heard. What is cached of that shard may be
// old, or nothing, and it cannot be asked.
func (w world) unheard() step {
	if w.isReported() {
		return nothing
	}
	return report
}

// awaits reports whether the next step is that of another shard, which is heard: to make the cluster, or to delete it.
// That shard may not hear this one.
func (w world) awaits() bool {
	ws := w.workspace
	switch {
	case !w.elsewhere || !w.heard || !slices.Contains(ws.Finalizers, clusters.WorkspaceFinalizer):
		return false
	case ws.DeletionTimestamp != nil:
		return w.owned() && w.logicalCluster.DeletionTimestamp == nil
	default:
		return w.logicalCluster == nil && !controllers.HasBegun(ws) && !controllers.Adopts(w.workspace)
	}
}

// misses reports whether the LogicalCluster of a Workspace that has told of it is missing. It may be about to come, or
// the Workspace about to go: they do so together, and the caches of the two are not one.
func (w world) misses() bool {
	return !w.elsewhere && w.logicalCluster == nil && w.workspace.Spec.Cluster != "" && w.workspace.DeletionTimestamp == nil && controllers.HasBegun(w.workspace)
}

// await returns the next step while another shard is awaited.
func (w world) await() step {
	if !w.overdue {
		return nothing
	}
	return w.report()
}

// waits reports whether the Workspace waits for another shard to be heard, or for any that fits (""). The events of its
// objects do not tell.
func (w world) waits() (shard string, waits bool) {
	switch {
	case w.workspace.Spec.Cluster == "":
		return "", w.workspace.DeletionTimestamp == nil && w.workspace.Spec.Mount == nil && w.placement.shard == ""
	case w.elsewhere && !w.heard:
		return w.shard, true
	}
	return "", false
}

// report returns the next step if only the status may have to change.
func (w world) report() step {
	switch {
	case w.passing(), w.isReported():
		return nothing
	case !w.confirmed:
		return confirm
	default:
		return report
	}
}

// passing reports whether the LogicalCluster is in a state that it leaves at once, unless something goes wrong. A
// deletion that goes wrong says so in the LogicalCluster. A cluster that cannot be provided stays Scheduling, and so
// does the Workspace. To tell of such a state would cost a write for each workspace that is created, and one for each
// that is deleted.
func (w world) passing() bool {
	if !w.owned() {
		return false
	}
	status := w.logicalCluster.Status
	if w.logicalCluster.DeletionTimestamp != nil {
		return status.Phase != corev1alpha1.LogicalClusterPhaseDeleting && w.workspace.DeletionTimestamp != nil
	}
	return (status.Phase == "" || status.Phase == corev1alpha1.LogicalClusterPhaseScheduling) && len(w.logicalCluster.Spec.Initializers) == 0
}

// homeless reports whether the Workspace is in a system cluster, which cannot be the parent of another cluster.
func (w world) homeless() bool {
	return w.parent == nil && strings.HasPrefix(clusters.KeyOf(w.workspace).Cluster.String(), "system:")
}

// owned reports whether the LogicalCluster was created for this Workspace.
func (w world) owned() bool {
	return w.logicalCluster != nil && w.workspace.Spec.Cluster != "" && controllers.Owns(w.workspace, w.logicalCluster)
}

// scheduled returns the Workspace bound to a cluster. All changes are in one write, and existing values are kept: after
// a crash the next leader goes on with the same cluster name, so that no cluster is leaked or created twice.
func scheduled(w world, baseURL, clusterName string) *tenancyv1alpha1.Workspace {
	out := w.workspace.DeepCopy()
	if !slices.Contains(out.Finalizers, clusters.WorkspaceFinalizer) {
		out.Finalizers = append(out.Finalizers, clusters.WorkspaceFinalizer)
	}
	if out.Spec.Cluster == "" {
		place := w.placement
		out.Spec.Cluster = cmp.Or(place.adopted.String(), clusterName)
		if place.why != "" {
			metav1.SetMetaDataLabel(&out.ObjectMeta, clusters.ShardLabel, place.shard)
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, clusters.PlacementAnnotation, place.why)
		}
	}
	if out.Spec.URL == "" {
		out.Spec.URL = baseURL + "/clusters/" + childPath(w)
	}
	return out
}

// relocated returns the Workspace whose cluster is on another shard by now.
func relocated(w world) *tenancyv1alpha1.Workspace {
	out := w.workspace.DeepCopy()
	delete(out.Labels, clusters.ShardLabel)
	delete(out.Annotations, clusters.ReturnAnnotation)
	if w.movedTo != w.own {
		metav1.SetMetaDataLabel(&out.ObjectMeta, clusters.ShardLabel, w.movedTo)
	}
	if out.Annotations[clusters.PlacementAnnotation] != "" {
		out.Annotations[clusters.PlacementAnnotation] = "it was moved to shard " + w.movedTo
	}
	return out
}

// released returns the Workspace without the controller's finalizer.
func released(ws *tenancyv1alpha1.Workspace) *tenancyv1alpha1.Workspace {
	out := ws.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == clusters.WorkspaceFinalizer })
	return out
}

// childPath returns the path of the Workspace's cluster. It is below the parent's path, or below the parent's name if
// that has no path.
func childPath(w world) string {
	parent := clusters.KeyOf(w.workspace).Cluster.String()
	if w.parent != nil && w.parent.Annotations[core.LogicalClusterPathAnnotationKey] != "" {
		parent = w.parent.Annotations[core.LogicalClusterPathAnnotationKey]
	}
	return parent + ":" + w.workspace.Name
}

// reported returns the Workspace with the status that the world requires. It shares all but the status, since the sweep
// asks for each of a million.
func reported(w world) *tenancyv1alpha1.Workspace {
	copied := *w.workspace
	out := &copied
	w.workspace.Status.DeepCopyInto(&out.Status)
	lc := w.logicalCluster
	switch {
	case w.elsewhere && !w.heard:
		reportUnheard(out, w.shard)
	case w.overdue && w.awaits():
		reportOverdue(out, w.shard)
	case out.DeletionTimestamp != nil:
		out.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
		reportDeletion(out, lc)
	case out.Spec.Mount != nil:
		unschedulable(out, "spec.mount: nothing in this shard resolves mounts, and a mounted workspace has no logical cluster of its own")
	case out.Spec.Cluster == "" && !w.homeless():
		unschedulable(out, "%s", w.placement.why)
	case out.Spec.Cluster == "":
		unschedulable(out, "logical cluster %s cannot have workspaces: create it in root or below", clusters.KeyOf(out).Cluster)
	case lc == nil:
		conditions.MarkFalse(out, tenancyv1alpha1.WorkspaceInitialized, tenancyv1alpha1.WorkspaceInitializedWorkspaceDisappeared,
			v1alpha1.ConditionSeverityError, "the LogicalCluster of %s has disappeared: delete the workspace", out.Spec.Cluster)
	case !w.owned():
		unschedulable(out, "logical cluster %s belongs to another workspace: delete this one and create it without spec.cluster", out.Spec.Cluster)
	default:
		reportPhase(out, lc)
	}
	return out
}

// isReported reports whether the status is as the world requires.
func (w world) isReported() bool { return sameStatus(&reported(w).Status, &w.workspace.Status) }

// sameStatus compares as equality.Semantic.DeepEqual does, in a twentieth of the time. The sweep asks for each of a
// million Workspaces.
func sameStatus(a, b *tenancyv1alpha1.WorkspaceStatus) bool {
	return a.Phase == b.Phase && slices.Equal(a.Initializers, b.Initializers) && slices.Equal(a.Terminators, b.Terminators) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(a, b v1alpha1.Condition) bool {
			since := a.LastTransitionTime.Equal(&b.LastTransitionTime)
			a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
			return since && a == b
		})
}

// reportUnheard tells what waits for a shard that is not heard. A workspace that is Ready stays so: its users notice by
// themselves.
func reportUnheard(ws *tenancyv1alpha1.Workspace, shard string) {
	switch {
	case ws.DeletionTimestamp != nil:
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
		conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceContentDeleted, shardNotHeard,
			v1alpha1.ConditionSeverityWarning, "shard %s, which has the logical cluster, is not heard", shard)
	case !controllers.HasBegun(ws):
		placed(ws)
		conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceInitialized, shardNotHeard,
			v1alpha1.ConditionSeverityWarning, "shard %s, which makes the logical cluster, is not heard", shard)
	}
}

// reportOverdue tells which shard has not begun.
func reportOverdue(ws *tenancyv1alpha1.Workspace, shard string) {
	if ws.DeletionTimestamp != nil {
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
		conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceContentDeleted, shardNotBegun,
			v1alpha1.ConditionSeverityWarning, "shard %s is heard, and has not begun to delete the logical cluster: it may not hear this shard, see regent_shards_heard there", shard)
		return
	}
	placed(ws)
	conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceInitialized, shardNotBegun,
		v1alpha1.ConditionSeverityWarning, "shard %s is heard, and has not made the logical cluster yet: it may not hear this shard, see regent_shards_heard there", shard)
}

// The reasons of conditions that wait for another shard. They name the shard that has the cluster, and no other one:
// readers of the Workspace know it already by clusters.ShardLabel.
const (
	shardNotHeard = "ShardNotHeard"
	shardNotBegun = "ShardHasNotBegun"
)

func unschedulable(ws *tenancyv1alpha1.Workspace, format string, args ...any) {
	conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.WorkspaceReasonUnschedulable,
		v1alpha1.ConditionSeverityError, format, args...)
}

// placed says that the Workspace has a shard, and why that one.
func placed(ws *tenancyv1alpha1.Workspace) {
	condition := conditions.TrueCondition(tenancyv1alpha1.WorkspaceScheduled)
	condition.Message = ws.Annotations[clusters.PlacementAnnotation]
	conditions.Set(ws, condition)
}

func reportPhase(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) {
	placed(ws)
	ws.Status.Phase = lc.Status.Phase
	ws.Status.Initializers = slices.Clone(lc.Status.Initializers)
	switch lc.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing:
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
		if len(lc.Status.Initializers) > 0 {
			conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceInitialized, tenancyv1alpha1.WorkspaceInitializedInitializerExists,
				v1alpha1.ConditionSeverityInfo, "initializers still exist: %v", lc.Status.Initializers)
		} else {
			conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceInitialized, "Initializing",
				v1alpha1.ConditionSeverityInfo, "the logical cluster is being initialized")
		}
	case corev1alpha1.LogicalClusterPhaseReady:
		conditions.MarkTrue(ws, tenancyv1alpha1.WorkspaceInitialized)
	}
}

func reportDeletion(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) {
	if lc == nil {
		return
	}
	ws.Status.Terminators = slices.Clone(lc.Status.Terminators)
	mirrored := conditions.Get(lc, tenancyv1alpha1.WorkspaceContentDeleted)
	if mirrored == nil || mirrored.Status != corev1.ConditionFalse {
		conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceContentDeleted, "Deleting",
			v1alpha1.ConditionSeverityInfo, "the content of logical cluster %s is being deleted", ws.Spec.Cluster)
		return
	}
	conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceContentDeleted, mirrored.Reason, mirrored.Severity, "%s", mirrored.Message)
}

// newClusterName returns a DNS label of 16 characters. It has 80 random bits, so no name is used twice.
func newClusterName() logicalcluster.Name {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	name := make([]byte, 16)
	_, _ = rand.Read(name) // never fails
	for i, b := range name {
		name[i] = alphabet[int(b)%len(alphabet)]
	}
	if name[0] < 'a' {
		name[0] += 'a' - '2'
	}
	return logicalcluster.Name(name)
}
