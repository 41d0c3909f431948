package logicalcluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// The binding of who has created a cluster's workspace to the role that may do everything in the cluster. The names are
// kcp's.
const (
	creatorBinding = "workspace-admin"
	creatorRole    = "cluster-admin"
)

// bindCreator makes the creator of a new cluster its administrator, before the cluster is Ready. It does so once: later
// the binding is the cluster's own, and whoever may delete it takes the creator's rights away.
func (c *controller) bindCreator(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	owner := lc.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]
	if owner == "" || lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
		return nil
	}
	if _, ok := c.informers.ClusterRoleBindings.Get(clusters.Key{Cluster: clusters.KeyOf(lc).Cluster, Name: creatorBinding}); ok {
		return nil
	}
	creator, err := clusters.CreatorOf(owner)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A new logical cluster has no administrator but system:masters: bind one to cluster-admin", "cluster", clusters.KeyOf(lc).Cluster)
		return nil
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: creatorBinding},
		Subjects:   []rbacv1.Subject{creator},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: creatorRole},
	}
	if _, err := c.clients.Kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{FieldManager: name}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind the creator to %s: %w", creatorRole, err)
	}
	return nil
}
