package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Remove takes a shard out of the installation. It cordons the shard first, and refuses to go on while the shard has
// logical clusters, or Workspaces are assigned to it. The shard's name is not used again.
func (a *Admin) Remove(ctx context.Context, name string) error {
	root, err := a.root(ctx)
	if err != nil {
		return err
	}
	if name == root.Name {
		return fmt.Errorf("%s is the root shard: without it there is no installation", name)
	}
	if err := a.Cordon(ctx, name, true); err != nil {
		return err
	}
	all, err := a.members(ctx)
	if err != nil {
		return err
	}
	if err := a.awaitCordon(ctx, all, name); err != nil {
		return err
	}
	var blocking []string
	for _, shard := range all {
		clients, err := a.of(shard)
		if err != nil {
			return err
		}
		blockers, err := findBlockers(ctx, clients, shard, name)
		if err != nil {
			return fmt.Errorf("shard %s does not say what it has, and so %s may still have clusters: %w", shard.Name, name, err)
		}
		blocking = append(blocking, blockers...)
	}
	if len(blocking) > 0 {
		return fmt.Errorf("%s takes no new logical clusters any more, and cannot be removed yet, for it still has %d: %s. Move them away (regent shard drain), or delete their Workspaces, and try again",
			name, len(blocking), shorten(blocking))
	}
	return a.change(ctx, name, func(s *corev1alpha1.Shard) error {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.RemovedAnnotation, "true")
		return nil
	})
}

// cordonGrace is how long a leader may still assign by what it has just read, once its shard's copy of the Shard is
// cordoned.
const cordonGrace = 2 * time.Second

// awaitCordon waits until every shard knows that a shard is cordoned, so that none assigns anything to it any more.
func (a *Admin) awaitCordon(ctx context.Context, all []*corev1alpha1.Shard, name string) error {
	for _, shard := range all {
		clients, err := a.of(shard)
		if err != nil {
			return err
		}
		err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			copy, err := clients.Shards.Get(clusters.With(ctx, clusters.SystemShards), name, metav1.GetOptions{})
			return err == nil && clusters.IsCordoned(copy), err
		})
		if err != nil {
			return fmt.Errorf("shard %s does not say that it knows that %s is cordoned, and may still assign clusters to it: %w", shard.Name, name, err)
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(cordonGrace):
		return nil
	}
}

// findBlockers returns what a shard knows of clusters that the shard called name has: those that it has assigned there,
// or if it is that shard, its own.
func findBlockers(ctx context.Context, clients controllers.Clients, shard *corev1alpha1.Shard, name string) (blockers []string, err error) {
	everywhere := clusters.With(ctx, clusters.Wildcard)
	if shard.Name == name {
		list, err := clients.LogicalClusters.List(everywhere, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			blockers = append(blockers, pathOf(&list.Items[i]))
		}
		return blockers, nil
	}
	list, err := clients.Workspaces.List(everywhere, metav1.ListOptions{LabelSelector: clusters.ShardLabel + "=" + name})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		blockers = append(blockers, "workspace "+clusters.KeyOf(&list.Items[i]).String())
	}
	return blockers, nil
}

func pathOf(lc *corev1alpha1.LogicalCluster) string {
	if path := lc.Annotations[core.LogicalClusterPathAnnotationKey]; path != "" {
		return path
	}
	return clusters.KeyOf(lc).Cluster.String()
}

// shorten returns the first few of names.
func shorten(names []string) string {
	const most = 10
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}
