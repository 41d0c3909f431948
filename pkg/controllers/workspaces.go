package controllers

import (
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-dev/sdk/apis/core"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
)

// HasBegun reports whether a Workspace has told of its LogicalCluster. If that has gone since, it is not created again:
// a cluster name is never reused.
func HasBegun(ws *tenancyv1alpha1.Workspace) bool {
	return ws.Status.Phase != "" && ws.Status.Phase != corev1alpha1.LogicalClusterPhaseScheduling
}

// PathOf returns the path of a scheduled Workspace's cluster.
func PathOf(ws *tenancyv1alpha1.Workspace) string {
	_, path, _ := strings.Cut(ws.Spec.URL, "/clusters/")
	return path
}

// NewLogicalCluster returns the LogicalCluster of a scheduled Workspace, to be created in cluster ws.Spec.Cluster.
// ownerShard is the Workspace's shard, and empty if the LogicalCluster is in the same one.
func NewLogicalCluster(ws *tenancyv1alpha1.Workspace, ownerShard string) *corev1alpha1.LogicalCluster {
	out := &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name:        corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{core.LogicalClusterPathAnnotationKey: PathOf(ws)},
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
	if ws.Spec.Type != nil {
		out.Annotations[tenancyv1alpha1.LogicalClusterTypeAnnotationKey] = ws.Spec.Type.String()
	}
	if owner := ws.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]; owner != "" {
		out.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = owner
	}
	if ownerShard != "" {
		out.Labels = map[string]string{clusters.OwnerShardLabel: ownerShard}
	}
	return out
}

// Adoption returns the logical cluster that a Workspace is to adopt, and its shard. cluster is empty if it is to get a
// new one.
func Adoption(ws *tenancyv1alpha1.Workspace) (shard string, cluster logicalcluster.Name) {
	shard, name, _ := strings.Cut(ws.Annotations[clusters.AdoptAnnotation], "/")
	return shard, logicalcluster.Name(name)
}

// Adopts reports whether a Workspace has been assigned the logical cluster that it is to adopt.
func Adopts(ws *tenancyv1alpha1.Workspace) bool {
	_, cluster := Adoption(ws)
	return !cluster.Empty() && cluster.String() == ws.Spec.Cluster
}

// AgainstAdoption returns why a Workspace of shard owner must not adopt a LogicalCluster, and nothing if it may: the
// LogicalCluster is an orphan, and names the Workspace as its owner, by shard, logical cluster and name. The uid
// differs, because the Workspace is a new one.
func AgainstAdoption(ws *tenancyv1alpha1.Workspace, owner string, lc *corev1alpha1.LogicalCluster) string {
	key, was := clusters.KeyOf(ws), lc.Spec.Owner
	switch {
	case lc.DeletionTimestamp != nil:
		return "it is being deleted"
	case was == nil || lc.Labels[clusters.OwnerShardLabel] != owner || was.Resource != "workspaces" || was.Cluster != key.Cluster.String() || was.Name != key.Name:
		return "it was the cluster of another workspace"
	case !conditions.IsTrue(lc, clusters.ConditionOrphaned):
		return "it is no orphan"
	}
	return ""
}

// Owns reports whether a LogicalCluster was created for a Workspace.
func Owns(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) bool {
	return lc.Spec.Owner != nil && lc.Spec.Owner.UID == ws.UID && lc.Spec.Owner.Cluster == clusters.KeyOf(ws).Cluster.String()
}
