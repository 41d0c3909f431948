package logicalcluster

import (
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/content"
)

// hasFinalizer reports whether lc has the finalizer, or needs none.
func hasFinalizer(lc *corev1alpha1.LogicalCluster) bool {
	return clusters.IsPermanent(clusters.KeyOf(lc).Cluster) || slices.Contains(lc.Finalizers, clusters.ContentFinalizer)
}

// guarded returns lc with the finalizer, or nil if it has it or needs none.
func guarded(lc *corev1alpha1.LogicalCluster) *corev1alpha1.LogicalCluster {
	if hasFinalizer(lc) {
		return nil
	}
	out := lc.DeepCopy()
	out.Finalizers = append(out.Finalizers, clusters.ContentFinalizer)
	return out
}

// released returns lc without the finalizer.
func released(lc *corev1alpha1.LogicalCluster) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == clusters.ContentFinalizer })
	return out
}

// advanced returns lc in its next phase, or nil if it has to stay in this one:
//
//	Scheduling --initializers copied, URL set--> Initializing --no initializer left, namespaces there--> Ready
//	Scheduling --no initializers, namespaces there, URL set--> Ready
//	any --deleted--> Deleting (terminators copied)
//
// A phase never goes back. Phases outside of this diagram, such as Unavailable, may come from a backup or from another
// writer. They are treated like Initializing; otherwise only administrators could ever write in that cluster. provided
// says whether the namespaces exist.
func advanced(lc *corev1alpha1.LogicalCluster, baseURL string, provided bool) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	fresh := lc.Status.Phase == "" || lc.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling
	if fresh && out.Status.URL == "" {
		out.Status.URL = baseURL + clusters.RequestPath(clusters.KeyOf(lc).Cluster)
	}
	switch {
	case lc.DeletionTimestamp != nil:
		if lc.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting {
			return nil
		}
		out.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
		out.Status.Terminators = slices.Clone(lc.Spec.Terminators)
	case lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady:
		return nil
	case fresh && len(lc.Spec.Initializers) > 0:
		out.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
		out.Status.Initializers = slices.Clone(lc.Spec.Initializers)
	case fresh && !provided:
		return nil // one write is enough for a cluster that nobody initializes
	case len(lc.Status.Initializers) == 0 && provided:
		out.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	case lc.Status.Phase != corev1alpha1.LogicalClusterPhaseInitializing:
		out.Status.Phase = corev1alpha1.LogicalClusterPhaseInitializing
	default:
		return nil
	}
	return out
}

// blocked returns a deleted lc in phase Deleting, with the condition that says why its content is not gone, or nil if
// it is so already.
func blocked(lc *corev1alpha1.LogicalCluster, reason, message string) *corev1alpha1.LogicalCluster {
	old, out := conditions.Get(lc, tenancyv1alpha1.WorkspaceContentDeleted), advanced(lc, "", false)
	if out == nil && old != nil && old.Status == corev1.ConditionFalse && old.Reason == reason && old.Message == message {
		return nil
	}
	if out == nil {
		out = lc.DeepCopy()
	}
	conditions.MarkFalse(out, tenancyv1alpha1.WorkspaceContentDeleted, reason, v1alpha1.ConditionSeverityInfo, "%s", message)
	return out
}

// heldByOthers returns a deleted lc that tells of its finalizers which are not this controller's, or nil if it has
// none, or tells of them already.
func heldByOthers(lc *corev1alpha1.LogicalCluster) *corev1alpha1.LogicalCluster {
	others := released(lc).Finalizers
	if len(others) == 0 || clusters.IsPermanent(clusters.KeyOf(lc).Cluster) {
		return nil
	}
	return blocked(lc, "FinalizersRemain", "The content has gone. The LogicalCluster has finalizers that others have to remove: "+strings.Join(others, ", "))
}

// explain returns what a deletion waits for.
func explain(remaining content.Remaining) (reason, message string) {
	message = "Some content remains: " + remaining.DescribeObjects()
	if len(remaining.Finalizers) > 0 {
		message += ". Finalizers remain: " + remaining.DescribeFinalizers()
	}
	return "SomeResourcesRemain", message
}

// ownerOf returns the key of the Workspace that owns lc, and false if no Workspace does.
func ownerOf(lc *corev1alpha1.LogicalCluster) (clusters.Key, bool) {
	owner := lc.Spec.Owner
	if owner == nil || owner.Resource != "workspaces" || !strings.HasPrefix(owner.APIVersion, tenancyv1alpha1.SchemeGroupVersion.Group+"/") {
		return clusters.Key{}, false
	}
	return clusters.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}, true
}
