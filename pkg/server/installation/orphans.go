package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Orphan is a logical cluster that has lost its Workspace.
type Orphan struct {
	Shard     string `json:"shard"`
	Cluster   string `json:"cluster"`
	Path      string `json:"path"`
	Workspace string `json:"workspace"`
	Owner     string `json:"ownerShard"`

	logicalCluster *corev1alpha1.LogicalCluster
	// clients are those of the shard that has it.
	clients controllers.Clients
}

// workspace returns the key of the Workspace that is lost.
func (o Orphan) workspace() clusters.Key {
	owner := o.logicalCluster.Spec.Owner
	return clusters.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}
}

// Orphans returns the logical clusters that have lost their Workspace, of all shards that answer. The error names those
// that do not. No shard waits for another one. The slice is nil only if the shards are not known.
func (a *Admin) Orphans(ctx context.Context) ([]Orphan, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	orphans, faults := make([][]Orphan, len(all)), make([]error, len(all))
	var asking sync.WaitGroup
	for n, member := range all {
		asking.Go(func() {
			var err error
			if orphans[n], err = a.orphansOf(ctx, member); err != nil {
				faults[n] = fmt.Errorf("shard %s does not say which of its clusters are orphans: %w", member.Name, err)
			}
		})
	}
	asking.Wait()
	return append([]Orphan{}, slices.Concat(orphans...)...), errors.Join(faults...)
}

func (a *Admin) orphansOf(ctx context.Context, member *corev1alpha1.Shard) (out []Orphan, err error) {
	clients, err := a.of(member)
	if err != nil {
		return nil, err
	}
	list, err := clients.LogicalClusters.List(clusters.With(ctx, clusters.Wildcard), metav1.ListOptions{LabelSelector: clusters.OwnerShardLabel})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		lc := &list.Items[i]
		if owner := lc.Spec.Owner; owner != nil && conditions.IsTrue(lc, clusters.ConditionOrphaned) {
			out = append(out, Orphan{
				Shard: member.Name, Cluster: clusters.KeyOf(lc).Cluster.String(), Path: pathOf(lc), Workspace: owner.Cluster + "|" + owner.Name,
				Owner: lc.Labels[clusters.OwnerShardLabel], logicalCluster: lc, clients: clients,
			})
		}
	}
	return out, nil
}

// orphan returns the orphan of that name. shard may be empty.
func (a *Admin) orphan(ctx context.Context, cluster, shard string) (Orphan, error) {
	all, err := a.Orphans(ctx)
	var matches []Orphan
	for _, o := range all {
		if o.Cluster == cluster && (shard == "" || o.Shard == shard) {
			matches = append(matches, o)
		}
	}
	switch {
	case len(matches) > 1:
		return Orphan{}, fmt.Errorf("shards %s and %s both have a logical cluster %s: give --shard", matches[0].Shard, matches[1].Shard, cluster)
	case len(matches) == 0:
		return Orphan{}, errors.Join(fmt.Errorf("logical cluster %s is no orphan: regent shard orphans lists those that are", cluster), err)
	case matches[0].logicalCluster.DeletionTimestamp != nil:
		return Orphan{}, fmt.Errorf("logical cluster %s of shard %s is being deleted", cluster, matches[0].Shard)
	}
	return matches[0], nil
}

// owner returns clients of the shard that had the Workspace of an orphan, and the Workspace that is in its place now,
// or nil. The clients are nil if that shard is no member any more.
func (a *Admin) owner(ctx context.Context, o Orphan) (*controllers.Clients, *tenancyv1alpha1.Workspace, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, member := range all {
		if member.Name != o.Owner {
			continue
		}
		clients, err := a.of(member)
		if err != nil {
			return nil, nil, err
		}
		key := o.workspace()
		ws, err := clients.Workspaces.Get(clusters.With(ctx, key.Cluster), key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return &clients, nil, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("shard %s does not say whether Workspace %s is back: %w", o.Owner, key, err)
		}
		return &clients, ws, nil
	}
	return nil, nil, nil
}

// DeleteOrphan deletes a logical cluster that has lost its Workspace, and everything in it. The cluster's shard empties
// it. shard may be empty if only one shard has such a cluster.
func (a *Admin) DeleteOrphan(ctx context.Context, cluster, shard string) (Orphan, error) {
	o, err := a.orphan(ctx, cluster, shard)
	if err != nil {
		return o, err
	}
	_, ws, err := a.owner(ctx, o)
	if err != nil {
		return o, err
	}
	if ws != nil && (ws.Spec.Cluster == cluster || adopts(ws, o)) {
		return o, fmt.Errorf("logical cluster %s has a Workspace again, %s of shard %s: delete that, if you want the cluster to go", cluster, o.workspace(), o.Owner)
	}
	lc := o.logicalCluster
	err = o.clients.LogicalClusters.Delete(clusters.With(ctx, logicalcluster.Name(cluster)), lc.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &lc.UID, ResourceVersion: &lc.ResourceVersion},
	})
	if apierrors.IsConflict(err) {
		return o, fmt.Errorf("logical cluster %s changed just now, and may be no orphan any more: look with regent shard orphans: %w", cluster, err)
	}
	if err != nil {
		return o, fmt.Errorf("cannot delete logical cluster %s of shard %s: %w", cluster, o.Shard, err)
	}
	return o, nil
}

// Adopt creates the Workspace anew that a logical cluster has lost, and returns when the two know each other. The
// cluster keeps its name, its path and everything in it. shard may be empty if only one shard has such a cluster. It
// may be called again when it has failed.
func (a *Admin) Adopt(ctx context.Context, cluster, shard string) (Orphan, error) {
	o, err := a.orphan(ctx, cluster, shard)
	if err != nil {
		return o, err
	}
	clients, ws, err := a.owner(ctx, o)
	if err != nil {
		return o, err
	}
	if clients == nil {
		return o, fmt.Errorf("shard %s, which had Workspace %s, is no member of the installation: the cluster can only be deleted", o.Owner, o.workspace())
	}
	switch {
	case ws == nil:
		if err := a.recreate(ctx, o, clients); err != nil {
			return o, err
		}
	case adopts(ws, o): // an earlier call has created it
	case ws.Spec.Cluster == cluster:
		return o, fmt.Errorf("logical cluster %s has its Workspace %s of shard %s again: it ceases to be an orphan by itself", cluster, o.workspace(), o.Owner)
	default:
		return o, fmt.Errorf("there is another Workspace %s on shard %s: the cluster's path, %s, is that one's now; delete it first, if you want the orphan in its place", o.workspace(), o.Owner, o.Path)
	}
	return o, a.awaitAdoption(ctx, o, clients)
}

// adopts reports whether a Workspace is one that recreate has created for an orphan.
func adopts(ws *tenancyv1alpha1.Workspace, o Orphan) bool {
	shard, cluster := controllers.Adoption(ws)
	return shard == o.Shard && cluster.String() == o.Cluster && ws.DeletionTimestamp == nil
}

// recreate creates the Workspace of an orphan. The leader of its shard does the rest.
func (a *Admin) recreate(ctx context.Context, o Orphan, clients *controllers.Clients) error {
	key, lc := o.workspace(), o.logicalCluster
	parent, err := clients.LogicalClusters.Get(clusters.With(ctx, key.Cluster), corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && parent.DeletionTimestamp != nil {
		return fmt.Errorf("logical cluster %s, which had the Workspace, is on shard %s no longer: restore it, or delete the orphan", key.Cluster, o.Owner)
	}
	if err != nil {
		return fmt.Errorf("shard %s does not say whether it has logical cluster %s: %w", o.Owner, key.Cluster, err)
	}
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Annotations: map[string]string{clusters.AdoptAnnotation: o.Shard + "/" + o.Cluster}}}
	if owner := lc.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]; owner != "" {
		ws.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = owner
	}
	ws.Spec.Type = typeOf(lc)
	_, err = clients.Workspaces.Create(clusters.With(ctx, key.Cluster), ws, metav1.CreateOptions{FieldManager: "regent-shard"})
	if err != nil {
		return fmt.Errorf("cannot create Workspace %s on shard %s: %w", key, o.Owner, err)
	}
	return nil
}

// typeOf returns the type of the workspace that a cluster was made for, as the cluster's annotation says:
// <path>:<name>.
func typeOf(lc *corev1alpha1.LogicalCluster) *tenancyv1alpha1.WorkspaceTypeReference {
	text := lc.Annotations[tenancyv1alpha1.LogicalClusterTypeAnnotationKey]
	at := strings.LastIndex(text, ":")
	if at < 0 {
		return nil // the default
	}
	return &tenancyv1alpha1.WorkspaceTypeReference{Path: text[:at], Name: tenancyv1alpha1.WorkspaceTypeName(text[at+1:])}
}

// awaitAdoption waits until an orphan is none any more. The error has what the Workspace waits for.
func (a *Admin) awaitAdoption(ctx context.Context, o Orphan, clients *controllers.Clients) error {
	key, waitsFor := o.workspace(), "its leader has not seen it yet"
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		lc, err := o.clients.LogicalClusters.Get(clusters.With(ctx, logicalcluster.Name(o.Cluster)), corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		if err != nil || !conditions.IsTrue(lc, clusters.ConditionOrphaned) {
			return err == nil, err
		}
		ws, err := clients.Workspaces.Get(clusters.With(ctx, key.Cluster), key.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if condition := conditions.Get(ws, tenancyv1alpha1.WorkspaceScheduled); condition != nil && condition.Message != "" {
			waitsFor = condition.Message
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the Workspace %s of shard %s is there, and has not adopted logical cluster %s yet (%s): it will do so by itself, or run this command again: %w", key, o.Owner, o.Cluster, waitsFor, err)
	}
	return nil
}
