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

// established are the clusters of every shard, and the namespaces without which they are of no use.
var established = map[logicalcluster.Name][]string{
	clusters.SystemAdmin: {metav1.NamespaceDefault, metav1.NamespaceSystem},
	clusters.Root:        {metav1.NamespaceDefault, metav1.NamespaceSystem},
}

// establish creates what the cluster lacks. It asks the cache first, so that it costs nothing once all is there, and
// the server decides: what exists by then is left as it stands.
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

// establishRoot goes by the server, unless the cache shows that nothing is to be done: all others wait for it, and a new
// leader's cache may be late.
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

// becomeUsable returns lc as it should be once the shard holds what it needs, or nil if it stands as it should. Root is
// Ready, whatever somebody wrote: it has no initializers and is never emptied, and without it the shard is of no use. A URL
// stays: replicas may have different ones.
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
