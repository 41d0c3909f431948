package workspace

import (
	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Scheduler does the first step for Workspaces with the write that creates them, on every replica. It does so only
// where there is nothing to choose: the shard is alone. All others are for the leader.
type Scheduler struct {
	baseURL         string
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	shards          *shards
}

// NewScheduler returns a Scheduler of a shard.
func NewScheduler(shard, baseURL string, informers controllers.Informers) *Scheduler {
	return &Scheduler{
		baseURL: baseURL, logicalClusters: informers.LogicalClusters,
		shards: newShards(shard, informers, controllers.NewShards(shard, nil)),
	}
}

// Schedule gives ws, which is about to be created in a logical cluster, what the leader would give it, or nothing.
func (s *Scheduler) Schedule(in logicalcluster.Name, ws *tenancyv1alpha1.Workspace) {
	if _, adopted := controllers.Adoption(ws); ws.Name == "" || ws.Spec.Cluster != "" || ws.Spec.Mount != nil || !adopted.Empty() {
		return
	}
	select {
	case <-s.shards.members.Synced():
	default:
		return
	}
	parent, ok := s.logicalClusters.Get(clusters.Key{Cluster: in, Name: corev1alpha1.LogicalClusterName})
	if !ok {
		return
	}
	w := world{workspace: ws.DeepCopy(), parent: parent, own: s.shards.own, placement: place(ws, s.shards.candidates())}
	if w.placement.shard != w.own || w.placement.why != "" {
		return
	}
	metav1.SetMetaDataAnnotation(&w.workspace.ObjectMeta, logicalcluster.AnnotationKey, in.String())
	out := scheduled(w, s.baseURL, newClusterName().String())
	ws.Finalizers, ws.Spec = out.Finalizers, out.Spec
}
