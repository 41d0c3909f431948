package admission

import (
	"context"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
)

// BuiltIn gives new logical clusters built-in objects (see clusters.BuiltIn). Of a cluster that nobody initializes
// nothing else is to be made, so it is Ready with the write that creates its LogicalCluster.
type BuiltIn struct {
	// Shared reports whether all replicas of the shard know built-in objects.
	Shared func() bool
	// Revision returns a revision that etcd has had. 0: none is known.
	Revision func() int64
	// RootCA has the authorities by which clients know the API, in PEM.
	RootCA string
	// URL returns the URL of a logical cluster of this shard.
	URL func(logicalcluster.Name) string
}

// Handles implements admission.Interface.
func (b *BuiltIn) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface.
func (b *BuiltIn) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	lc, ok := a.GetObject().(*corev1alpha1.LogicalCluster)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	delete(lc.Annotations, clusters.BuiltInAnnotation)
	lc.Status = corev1alpha1.LogicalClusterStatus{}
	cluster, _ := clusters.From(ctx)
	b.Complete(cluster, lc)
	return nil
}

// Complete gives the new LogicalCluster of a logical cluster built-in objects, and has it Ready, if it may have them.
func (b *BuiltIn) Complete(cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) {
	revision := b.Revision()
	if clusters.IsPermanent(cluster) || revision == 0 || !b.Shared() {
		return
	}
	metav1.SetMetaDataAnnotation(&lc.ObjectMeta, clusters.BuiltInAnnotation, clusters.BuiltInValue(revision, b.RootCA))
	// Whether the Workspace of another shard exists is looked up before the cluster is Ready.
	elsewhere := lc.Labels[clusters.OwnerShardLabel] != ""
	if _, err := clusters.CreatorBindingOf(lc); err == nil && !elsewhere && len(lc.Spec.Initializers) == 0 {
		lc.Status = corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady, URL: b.URL(cluster)}
	}
}

var _ admission.MutationInterface = (*BuiltIn)(nil)
