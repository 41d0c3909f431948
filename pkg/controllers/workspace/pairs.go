package workspace

import (
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Pairs decides, on every replica, for which Workspaces nothing is left to the leader: they are created with their
// LogicalCluster, or deleted with it, by one write of whoever asks for it. What they become is what the leader would
// make of them, and what it goes on with.
type Pairs struct {
	baseURL         string
	complete        func(*corev1alpha1.LogicalCluster)
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	shards          *shards
}

// NewPairs returns the Pairs of a shard. others is nil for one that is alone. complete does to a new LogicalCluster
// what admission does.
func NewPairs(shard, baseURL string, informers controllers.Informers, others *controllers.Shards, complete func(*corev1alpha1.LogicalCluster)) *Pairs {
	of := controllers.Deps{Shard: shard, Shards: others}
	return &Pairs{baseURL: baseURL, complete: complete, logicalClusters: informers.LogicalClusters, shards: newShards(shard, informers, of.Others())}
}

// Begin implements storage.Pairs. What another shard may take, and what has to wait, is the leader's. This process does
// not know what the leader has just assigned to others, and takes them for emptier than they are: so it errs to the
// leader.
func (p *Pairs) Begin(in logicalcluster.Name, ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Workspace, *corev1alpha1.LogicalCluster) {
	if _, adopted := controllers.Adoption(ws); ws.Spec.Cluster != "" || ws.Spec.Mount != nil || !adopted.Empty() {
		return nil, nil
	}
	select {
	case <-p.shards.members.Synced():
	default:
		return nil, nil
	}
	parent, ok := p.logicalClusters.Get(clusters.Key{Cluster: in, Name: corev1alpha1.LogicalClusterName})
	if !ok {
		return nil, nil
	}
	w := world{workspace: ws.DeepCopy(), parent: parent, own: p.shards.own, shard: p.shards.own, placement: place(ws, p.shards.candidates())}
	if w.placement.shard != w.own {
		return nil, nil
	}
	metav1.SetMetaDataAnnotation(&w.workspace.ObjectMeta, logicalcluster.AnnotationKey, in.String())
	w.workspace = scheduled(w, p.baseURL, newClusterName().String())
	lc := controllers.NewLogicalCluster(w.workspace, "")
	metav1.SetMetaDataAnnotation(&lc.ObjectMeta, logicalcluster.AnnotationKey, w.workspace.Spec.Cluster)
	lc.Generation = 1
	if p.complete(lc); lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		return nil, nil
	}
	w.logicalCluster, w.confirmed = lc, true
	return reported(w), lc
}

// End implements storage.Pairs. The LogicalCluster is the cached one, which may be old.
func (p *Pairs) End(ws *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
	if ws.Spec.Cluster == "" || clusters.ShardOf(ws, clusters.ShardLabel, p.shards.own) != p.shards.own || !slices.Equal(ws.Finalizers, []string{clusters.WorkspaceFinalizer}) {
		return nil
	}
	lc, ok := p.logicalClusters.Get(clusters.Key{Cluster: logicalcluster.Name(ws.Spec.Cluster), Name: corev1alpha1.LogicalClusterName})
	switch {
	case !ok, lc.DeletionTimestamp != nil, !controllers.Owns(ws, lc), lc.Labels[clusters.OwnerShardLabel] != "", clusters.IsPermanent(clusters.KeyOf(lc).Cluster),
		len(lc.Spec.Terminators)+len(lc.Status.Terminators) > 0, !slices.Equal(lc.Finalizers, []string{clusters.ContentFinalizer}):
		return nil
	}
	return lc
}
