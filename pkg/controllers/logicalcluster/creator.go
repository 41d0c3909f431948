package logicalcluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// bindCreator makes the creator of a new cluster its administrator, before the cluster is Ready. It does so once: later
// the binding is the cluster's own, and whoever may delete it takes the creator's rights away.
func (c *controller) bindCreator(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	if lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
		return nil
	}
	binding, err := clusters.CreatorBindingOf(lc)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A new logical cluster has no administrator but system:masters: bind one to cluster-admin", "cluster", clusters.KeyOf(lc).Cluster)
		return nil
	}
	if binding == nil || clusters.HasBuiltIn(lc) {
		return nil
	}
	if _, ok := c.informers.ClusterRoleBindings.Get(clusters.Key{Cluster: clusters.KeyOf(lc).Cluster, Name: binding.Name}); ok {
		return nil
	}
	if _, err := c.clients.Kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{FieldManager: name}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind the creator to %s: %w", binding.RoleRef.Name, err)
	}
	return nil
}
