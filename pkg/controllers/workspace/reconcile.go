package workspace

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
)

// step is the next thing to do for a Workspace. After each step, the next is decided anew, by this leader or by another:
//
//	new -> schedule (finalizer, cluster, URL in one write) -> create LogicalCluster -> confirm -> report its phase
//	deleted -> remove LogicalCluster -> confirm that it is gone -> release (finalizer removed)
//
// What lasts is reported meanwhile: initializers that are left, content that cannot be deleted.
type step string

const (
	nothing  step = "nothing"
	schedule step = "schedule"
	create   step = "create"
	confirm  step = "confirm"
	report   step = "report"
	remove   step = "remove"
	release  step = "release"
)

// world is everything that a decision depends on.
type world struct {
	workspace *tenancyv1alpha1.Workspace
	// logicalCluster is the one that spec.cluster names. Nil: there is none.
	logicalCluster *corev1alpha1.LogicalCluster
	// parent is the LogicalCluster of the cluster that has the Workspace. Nil: there is none.
	parent *corev1alpha1.LogicalCluster
	// confirmed says that the server has been asked for logicalCluster, or for parent if spec.cluster is empty. Until then they
	// are from caches, one of which may be ahead of the other.
	confirmed bool
	// answered says that workspace is the server's answer to this leader's own write, and not from a cache.
	answered bool
}

// decide is pure. A write is guarded only by the resourceVersion of the object that it changes. Therefore, before a write that
// depends on another object, or on its absence, that object is read from the server. For create, the step itself does so.
func decide(w world) step {
	ws := w.workspace
	managed := slices.Contains(ws.Finalizers, clusters.WorkspaceFinalizer)
	switch {
	case ws.DeletionTimestamp != nil && !managed:
		return nothing
	case ws.DeletionTimestamp != nil && !w.owned() && ws.Spec.Cluster != "" && !w.confirmed:
		return confirm
	case ws.DeletionTimestamp != nil && !w.owned():
		return release
	case ws.DeletionTimestamp != nil && w.logicalCluster.DeletionTimestamp == nil:
		return remove
	case ws.DeletionTimestamp != nil, ws.Spec.Mount != nil:
		return w.report()
	case ws.Spec.Cluster == "" && w.homeless():
		return w.report()
	case w.parent == nil && !w.homeless() && (ws.Spec.Cluster == "" || ws.Spec.URL == "" || w.logicalCluster == nil && !begun(ws)):
		return nothing // wait for the parent's LogicalCluster: the path, which is permanent, derives from it
	case ws.Spec.Cluster == "", ws.Spec.URL == "", !managed:
		return schedule
	case w.logicalCluster == nil && !begun(ws):
		return create
	default:
		return w.report()
	}
}

// report returns the next step if only the status may have to change.
func (w world) report() step {
	switch {
	case w.passing(), apiequality.Semantic.DeepEqual(reported(w).Status, w.workspace.Status):
		return nothing
	case !w.confirmed:
		return confirm
	default:
		return report
	}
}

// passing reports whether the LogicalCluster is in a state that it leaves at once, unless something goes wrong. A deletion that goes
// wrong says so in the LogicalCluster. A cluster that cannot be provided stays Scheduling, and so does the Workspace. To tell of such
// a state would cost a write for each workspace that is created, and one for each that is deleted.
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
	return w.logicalCluster != nil && w.workspace.Spec.Cluster != "" && ownedBy(w.logicalCluster, w.workspace)
}

func ownedBy(lc *corev1alpha1.LogicalCluster, ws *tenancyv1alpha1.Workspace) bool {
	return lc.Spec.Owner != nil && lc.Spec.Owner.UID == ws.UID && lc.Spec.Owner.Cluster == clusters.KeyOf(ws).Cluster.String()
}

// begun reports whether the Workspace has told of its LogicalCluster. If that has gone since, it is not created again: a cluster
// name is never reused.
func begun(ws *tenancyv1alpha1.Workspace) bool {
	return ws.Status.Phase != "" && ws.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling
}

// scheduled returns the Workspace bound to a cluster. All changes are in one write, and existing values are kept: after a crash
// the next leader goes on with the same cluster name, so that no cluster is leaked or created twice.
func scheduled(w world, baseURL, clusterName string) *tenancyv1alpha1.Workspace {
	out := w.workspace.DeepCopy()
	if !slices.Contains(out.Finalizers, clusters.WorkspaceFinalizer) {
		out.Finalizers = append(out.Finalizers, clusters.WorkspaceFinalizer)
	}
	if out.Spec.Cluster == "" {
		out.Spec.Cluster = clusterName
	}
	if out.Spec.URL == "" {
		out.Spec.URL = baseURL + "/clusters/" + childPath(w)
	}
	return out
}

// released returns the Workspace without the controller's finalizer.
func released(ws *tenancyv1alpha1.Workspace) *tenancyv1alpha1.Workspace {
	out := ws.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == clusters.WorkspaceFinalizer })
	return out
}

// childPath returns the path of the Workspace's cluster. It is below the parent's path, or below the parent's name if that has
// no path.
func childPath(w world) string {
	parent := clusters.KeyOf(w.workspace).Cluster.String()
	if w.parent != nil && w.parent.Annotations[core.LogicalClusterPathAnnotationKey] != "" {
		parent = w.parent.Annotations[core.LogicalClusterPathAnnotationKey]
	}
	return parent + ":" + w.workspace.Name
}

// newLogicalCluster returns the LogicalCluster of a scheduled Workspace.
func newLogicalCluster(w world) *corev1alpha1.LogicalCluster {
	ws := w.workspace
	annotations := map[string]string{core.LogicalClusterPathAnnotationKey: childPath(w)}
	if ws.Spec.Type != nil {
		annotations[tenancyv1alpha1.LogicalClusterTypeAnnotationKey] = ws.Spec.Type.String()
	}
	if owner := ws.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]; owner != "" {
		annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = owner
	}
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        corev1alpha1.LogicalClusterName,
			Annotations: annotations,
			// Set at the creation, so that no LogicalCluster can go before its content.
			Finalizers: []string{clusters.ContentFinalizer},
		},
		Spec: corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{
			APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(),
			Resource:   "workspaces",
			Name:       ws.Name,
			Cluster:    clusters.KeyOf(ws).Cluster.String(),
			UID:        ws.UID,
		}},
	}
}

// reported returns the Workspace with the status that the world requires.
func reported(w world) *tenancyv1alpha1.Workspace {
	out := w.workspace.DeepCopy()
	lc := w.logicalCluster
	switch {
	case out.DeletionTimestamp != nil:
		out.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
		reportDeletion(out, lc)
	case out.Spec.Mount != nil:
		unschedulable(out, "spec.mount: nothing in this shard resolves mounts, and a mounted workspace has no logical cluster of its own")
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

func unschedulable(ws *tenancyv1alpha1.Workspace, format string, args ...any) {
	conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.WorkspaceReasonUnschedulable,
		v1alpha1.ConditionSeverityError, format, args...)
}

func reportPhase(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) {
	conditions.MarkTrue(ws, tenancyv1alpha1.WorkspaceScheduled)
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
