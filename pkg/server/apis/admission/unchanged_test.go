package admission

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// Whoever rotates an encryption key has the copies of Shard objects written anew, and cannot change them.
func TestACopyOfAShardObjectMayBeWrittenAsItIs(t *testing.T) {
	there := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "eu1", Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "leader"}}}}
	same, other := there.DeepCopy(), there.DeepCopy()
	same.ManagedFields = nil
	other.Annotations["a"] = "c"
	for _, c := range []struct {
		name     string
		op       admission.Operation
		obj, old *corev1alpha1.Shard
		cluster  string
		refused  bool
	}{
		{"as it is", admission.Update, same, there, "system:shards", false},
		{"changed", admission.Update, other, there, "system:shards", true},
		{"created", admission.Create, same, nil, "system:shards", true},
		{"changed where it is no copy", admission.Update, other, there, "root", false},
	} {
		var old *corev1alpha1.Shard
		if old = c.old; old == nil {
			old = &corev1alpha1.Shard{}
		}
		a := admission.NewAttributesRecord(c.obj, old, corev1alpha1.SchemeGroupVersion.WithKind("Shard"), "", "eu1",
			corev1alpha1.SchemeGroupVersion.WithResource("shards"), "", c.op, nil, false, &user.DefaultInfo{Name: "admin"})
		err := (&TenancyProtection{Leader: "leader"}).Validate(clusters.With(t.Context(), logicalcluster.Name(c.cluster)), a, nil)
		if apierrors.IsForbidden(err) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
