package logicalcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/content"
)

// empty takes a deleted cluster as far as it can get now, in this order: delete the owner, wait for terminators, delete
// child workspaces and wait for their clusters, delete content, delete namespaces. When live lists show that nothing is
// left, it removes the finalizer. Events bring the cluster back to whatever it waits for. The status tells of the
// deletion only if it has to wait: also for finalizers of others, when the content has gone.
//
// No creation commits in a cluster once its deletion has begun, so a cluster that was seen empty stays empty.
//
// A cluster that holds nothing is let go at once. Before it deletes anything, empty reads the LogicalCluster from the
// server: the one in a stale cache may be gone, and another may live under its name. Once the server has shown it, only
// this controller can remove its finalizer.
func (c *controller) empty(ctx context.Context, cached *corev1alpha1.LogicalCluster) error {
	if !slices.Contains(cached.Finalizers, clusters.ContentFinalizer) {
		_, err := c.tellOfOthers(ctx, cached)
		return err
	}
	if c.leavesNothing(ctx, cached) {
		return c.release(ctx, cached)
	}
	lc, err := c.live(ctx, cached)
	if err != nil || lc == nil || !slices.Contains(lc.Finalizers, clusters.ContentFinalizer) {
		return err
	}
	if clusters.IsPermanent(clusters.KeyOf(lc).Cluster) {
		return c.release(ctx, lc)
	}
	if len(lc.Spec.Terminators) > 0 {
		if out := advanced(lc, c.baseURL, false); out != nil {
			if lc, err = c.clients.LogicalClusters.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name}); err != nil {
				return fmt.Errorf("update status: %w", err)
			}
		}
	}
	reason, message, err := c.purge(ctx, lc)
	switch {
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		return errors.Join(err, c.wait(ctx, lc, "ContentDeletionFailed", err.Error()))
	case reason != "":
		return c.wait(ctx, lc, reason, message)
	}
	if lc, err = c.tellOfOthers(ctx, lc); err != nil || lc == nil {
		return err
	}
	return c.release(ctx, lc)
}

// leavesNothing reports whether a deleted cluster holds nothing, and nobody has to be told or waited for: so it is with
// most, whose Workspace was deleted. Then there is nothing to delete by mistake, and the release of one that only the
// cache shows is refused. It is false if it cannot be told.
func (c *controller) leavesNothing(ctx context.Context, lc *corev1alpha1.LogicalCluster) bool {
	key, ok := ownerOf(lc)
	if !ok || c.elsewhere(lc) || len(lc.Spec.Terminators)+len(lc.Status.Terminators) > 0 || len(lc.Finalizers) > 1 || clusters.IsPermanent(clusters.KeyOf(lc).Cluster) {
		return false
	}
	if ws, ok := c.informers.Workspaces.Get(key); !ok || ws.UID != lc.Spec.Owner.UID || ws.DeletionTimestamp == nil {
		return false
	}
	held, custom, err := c.contents(ctx)
	return err == nil && len(held) == 0 && !custom
}

// tellOfOthers writes into the status of a cluster whose content has gone which finalizers of others hold it. It
// returns the cluster as it is then: nil, if it has gone.
func (c *controller) tellOfOthers(ctx context.Context, lc *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error) {
	out := heldByOthers(lc)
	if out == nil {
		return lc, nil
	}
	lc, err := c.clients.LogicalClusters.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("update status: %w", err)
	}
	return lc, nil
}

// purge deletes what is in the cluster, and the Workspace that owns it. It returns what the deletion waits for. Empty:
// there is nothing left.
func (c *controller) purge(ctx context.Context, lc *corev1alpha1.LogicalCluster) (reason, message string, err error) {
	if err := c.deleteOwner(ctx, lc); err != nil {
		return "", "", err
	}
	if follows, err := c.ownerFollows(ctx, lc); err != nil || !follows {
		return "OwnerRemains", "Waiting for the Workspace on shard " + lc.Labels[clusters.OwnerShardLabel] + " to be deleted by that shard", err
	}
	if len(lc.Status.Terminators) > 0 {
		return "TerminatorExists", fmt.Sprintf("Some terminators remain: %v", lc.Status.Terminators), nil
	}
	held, custom, err := c.contents(ctx)
	if err != nil {
		return "", "", err
	}
	children, err := c.deleteChildren(ctx, clusters.KeyOf(lc), held)
	if err != nil {
		return "", "", err
	}
	if children > 0 {
		return "SomeWorkspacesRemain", fmt.Sprintf("Waiting for %d workspaces inside of it to go first", children), nil
	}
	remaining, err := content.Purge(ctx, c.clients.Metadata, content.Of(held, isContent), metav1.NamespaceAll)
	if err != nil {
		return "", "", err
	}
	if remaining.Empty() && len(held) > 0 {
		if err := c.deleteNamespaces(ctx); err != nil {
			return "", "", err
		}
		if held, custom, err = c.contents(ctx); err != nil {
			return "", "", err
		}
		if remaining, err = content.Find(ctx, c.clients.Metadata, held, metav1.NamespaceAll); err != nil {
			return "", "", err
		}
	}
	if !remaining.Empty() {
		reason, message = explain(remaining)
		return reason, message, nil
	}
	if custom { // although there is no definition any more
		return "SomeCustomObjectsRemain", "There are custom objects without a definition: somebody has removed the finalizer of a definition by hand", nil
	}
	return "", "", nil
}

// contents returns the resources of which the cluster holds something, and whether it holds custom objects.
func (c *controller) contents(ctx context.Context) (all []controllers.Resource, custom bool, err error) {
	of := []schema.GroupVersionResource{clusters.CustomObjects}
	for _, r := range c.everything {
		of = append(of, r.GVR)
	}
	held, err := c.holding(ctx, of)
	if err != nil {
		return nil, false, err
	}
	for _, r := range c.everything {
		if slices.Contains(held, r.GVR) {
			all = append(all, r)
		}
	}
	return all, slices.Contains(held, clusters.CustomObjects), nil
}

// deleteOwner deletes the Workspace of a cluster that was deleted directly. Both must name each other. A link that only
// one of the two claims may be forged, or restored from a backup. A Workspace of another shard is not written from
// here: that shard sees the deletion, and follows.
func (c *controller) deleteOwner(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	key, ok := ownerOf(lc)
	if !ok || c.elsewhere(lc) {
		return nil
	}
	ws, ok := c.informers.Workspaces.Get(key)
	if !ok || ws.UID != lc.Spec.Owner.UID || ws.DeletionTimestamp == nil {
		var err error
		if ws, err = c.owner(ctx, lc, key); err != nil || ws == nil {
			return err
		}
	}
	if ws.UID != lc.Spec.Owner.UID || ws.Spec.Cluster != clusters.KeyOf(lc).Cluster.String() || ws.DeletionTimestamp != nil {
		return nil
	}
	err := c.clients.Workspaces.Delete(clusters.With(ctx, key.Cluster), key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &ws.UID},
	})
	if controllers.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete owner %s: %w", key, err)
	}
	return nil
}

// deleteChildren deletes the Workspaces in the cluster and returns how many are left. As long as the cache has some,
// their number comes from the cache: it may be too high, but each Workspace that goes queues the cluster again. If the
// cache has none, but the server holds some, the server is asked.
func (c *controller) deleteChildren(ctx context.Context, key clusters.Key, held []controllers.Resource) (int, error) {
	children := c.informers.Workspaces.List(key.Cluster)
	if len(children) == 0 && slices.ContainsFunc(held, isWorkspaces) {
		// each that goes queues the cluster again
		live, err := c.clients.Workspaces.List(ctx, metav1.ListOptions{Limit: content.PageSize})
		if err != nil {
			return 0, fmt.Errorf("list workspaces: %w", err)
		}
		for i := range live.Items {
			children = append(children, &live.Items[i])
		}
	}
	for _, ws := range children {
		if ws.DeletionTimestamp != nil {
			continue
		}
		err := c.clients.Workspaces.Delete(ctx, ws.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ws.UID}})
		if controllers.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("delete workspace %s: %w", ws.Name, err)
		}
	}
	return len(children), nil
}

// ownerFollows reports whether the Workspace of lc, if another shard has it, is being deleted, too. That shard deletes
// it when it sees that lc is being deleted. If lc went before, it would only see that its cluster is missing.
func (c *controller) ownerFollows(ctx context.Context, lc *corev1alpha1.LogicalCluster) (bool, error) {
	key, ok := ownerOf(lc)
	if !ok || !c.elsewhere(lc) {
		return true, nil
	}
	ws, err := c.owner(ctx, lc, key)
	if err != nil {
		return false, err
	}
	return ws == nil || ws.UID != lc.Spec.Owner.UID || ws.Spec.Cluster != clusters.KeyOf(lc).Cluster.String() || ws.DeletionTimestamp != nil, nil
}

// deleteNamespaces deletes and finalizes the cluster's namespaces, which are empty by now. The namespace controller
// leaves them alone, because it would only list each of them again.
func (c *controller) deleteNamespaces(ctx context.Context) error {
	client := c.clients.Kube.CoreV1().Namespaces()
	// each that goes queues the cluster again
	namespaces, err := client.List(ctx, metav1.ListOptions{Limit: content.PageSize})
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	for i := range namespaces.Items {
		if err := c.deleteNamespace(ctx, &namespaces.Items[i]); controllers.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete namespace %s: %w", namespaces.Items[i].Name, err)
		}
	}
	return nil
}

func (c *controller) deleteNamespace(ctx context.Context, ns *corev1.Namespace) error {
	client := c.clients.Kube.CoreV1()
	if ns.DeletionTimestamp == nil {
		// The typed client's Delete drops the answer, which has the namespace as it is now.
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ns.UID}}
		deleted := &corev1.Namespace{}
		if err := client.RESTClient().Delete().Resource("namespaces").Name(ns.Name).Body(&options).Do(ctx).Into(deleted); err != nil {
			return err
		}
		if deleted.DeletionTimestamp == nil {
			return nil // it had no finalizer
		}
		ns = deleted
	}
	out := content.Finalized(ns)
	if out == nil {
		return nil // it waits for other finalizers
	}
	_, err := client.Namespaces().Finalize(ctx, out, metav1.UpdateOptions{FieldManager: name})
	return err
}

func (c *controller) wait(ctx context.Context, lc *corev1alpha1.LogicalCluster, reason, message string) error {
	out := blocked(lc, reason, message)
	if out == nil {
		return nil
	}
	if _, err := c.clients.LogicalClusters.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name}); err != nil {
		return fmt.Errorf("update status: %w", err)
	}
	return nil
}

func (c *controller) release(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	if _, err := c.clients.LogicalClusters.Update(ctx, released(lc), metav1.UpdateOptions{FieldManager: name}); controllers.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	return nil
}
