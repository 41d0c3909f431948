package members

import (
	"maps"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// self is what the shard knows of itself.
type self struct {
	name string
	// baseURL is the URL of this replica, externalURL that under which clients reach the shard.
	baseURL, externalURL string
	capacity             int64
}

// object returns the Shard object with which the root shard becomes a member.
func (s self) object() *corev1alpha1.Shard {
	return &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec:       corev1alpha1.ShardSpec{BaseURL: s.baseURL, ExternalURL: s.externalURL},
	}
}

// tell returns the shard's own copy with the numbers of logical clusters, or nil if it has them.
func (s self) tell(copied *corev1alpha1.Shard, used int64) *corev1alpha1.Shard {
	want := corev1.ResourceList{
		clusters.CapacityClusters: *resource.NewQuantity(s.capacity, resource.DecimalSI),
		clusters.UsedClusters:     *resource.NewQuantity(used, resource.DecimalSI),
	}
	if apiequality.Semantic.DeepEqual(copied.Status.Capacity, want) {
		return nil
	}
	out := copied.DeepCopy()
	out.Status.Capacity = want
	return out
}

// copyOf returns the copy of a Shard object: new if there is none yet, nil if it is as it must be. The status of a copy
// belongs to whoever has it.
func copyOf(listed, copied *corev1alpha1.Shard) *corev1alpha1.Shard {
	annotations := maps.Clone(listed.Annotations)
	delete(annotations, logicalcluster.AnnotationKey)
	if copied == nil {
		return &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: listed.Name, Labels: listed.Labels, Annotations: annotations}, Spec: listed.Spec}
	}
	out := copied.DeepCopy()
	out.Spec, out.Labels, out.Annotations = listed.Spec, maps.Clone(listed.Labels), annotations
	if cluster, ok := copied.Annotations[logicalcluster.AnnotationKey]; ok {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, logicalcluster.AnnotationKey, cluster)
	}
	if apiequality.Semantic.DeepEqual(out, copied) {
		return nil
	}
	return out
}
