package bootstrap

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// established are the clusters of every shard, each with the namespaces that it needs.
var established = map[logicalcluster.Name][]string{
	clusters.SystemAdmin: {metav1.NamespaceDefault, metav1.NamespaceSystem},
	clusters.Root:        {metav1.NamespaceDefault, metav1.NamespaceSystem},
}

// establish creates what the cluster lacks by the cache. Objects that exist already, though the cache does not show
// them, are left as they are.
func (c *controller) establish(ctx context.Context, cluster logicalcluster.Name) error {
	ctx = clusters.With(ctx, cluster)
	if cluster == clusters.Root {
		if err := c.establishRoot(ctx); err != nil {
			return fmt.Errorf("establish logical cluster %s: %w", cluster, err)
		}
	}
	for _, name := range established[cluster] {
		if _, ok := c.namespaces.Get(clusters.Key{Cluster: cluster, Name: name}); ok {
			continue
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: Name}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s in logical cluster %s: %w", name, cluster, err)
		}
	}
	c.mark(cluster)
	return nil
}

// establishRoot reads root from the server, unless the cache shows that nothing needs to be done. A new leader's cache
// may be stale, and all other controllers wait for root.
func (c *controller) establishRoot(ctx context.Context) error {
	cached, ok := c.logicalClusters.Get(clusters.Key{Cluster: clusters.Root, Name: corev1alpha1.LogicalClusterName})
	if ok && becomeUsable(cached, c.baseURL) == nil {
		return nil
	}
	live, err := c.client.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = c.client.Create(ctx, newRoot(), metav1.CreateOptions{FieldManager: Name})
	}
	if err != nil {
		return err
	}
	usable := becomeUsable(live, c.baseURL)
	if usable == nil {
		return nil
	}
	_, err = c.client.UpdateStatus(ctx, usable, metav1.UpdateOptions{FieldManager: Name})
	return err
}

func newRoot() *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name:        corev1alpha1.LogicalClusterName,
		Annotations: map[string]string{core.LogicalClusterPathAnnotationKey: clusters.Root.String()},
	}}
}

// becomeUsable returns lc as it must be, or nil if it is so already. Root is made Ready in any phase: it has no
// initializers, is never emptied, and the shard is useless without it. An existing URL is kept, because replicas may be
// configured with different ones.
func becomeUsable(lc *corev1alpha1.LogicalCluster, baseURL string) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	out.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	if out.Status.URL == "" {
		out.Status.URL = baseURL + clusters.RequestPath(clusters.Root)
	}
	if out.Status.Phase == lc.Status.Phase && out.Status.URL == lc.Status.URL {
		return nil
	}
	return out
}
