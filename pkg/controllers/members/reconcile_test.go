package members

import (
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestACopyIsAsTheListSaysAndKeepsItsOwnStatus(t *testing.T) {
	listed := &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: "eu1", Labels: map[string]string{"region": "eu"}, Annotations: map[string]string{"kcp.io/cluster": "root", clusters.CordonAnnotation: "true"}},
		Spec:       corev1alpha1.ShardSpec{BaseURL: "https://a"},
	}
	made := copyOf(listed, nil)
	if made.Annotations["kcp.io/cluster"] != "" || !clusters.IsCordoned(made) || made.Labels["region"] != "eu" || made.Spec != listed.Spec {
		t.Fatalf("the first copy is %+v", made)
	}
	made.Annotations["kcp.io/cluster"], made.ResourceVersion, made.UID = "system:shards", "7", "u"
	made = self{name: "eu1", capacity: 10}.tell(made, 3)
	if made == nil || (self{name: "eu1", capacity: 10}).tell(made, 3) != nil {
		t.Fatal("its numbers are not told once")
	}
	if again := copyOf(listed, made); again != nil {
		t.Errorf("a copy that is right is written: %+v", again)
	}
	delete(listed.Annotations, clusters.CordonAnnotation)
	listed.Labels, listed.Spec.BaseURL = nil, "https://b"
	changed := copyOf(listed, made)
	if changed == nil || clusters.IsCordoned(changed) || len(changed.Labels) != 0 || changed.Spec.BaseURL != "https://b" {
		t.Fatalf("the copy becomes %+v", changed)
	}
	if changed.ResourceVersion != "7" || changed.UID != "u" || changed.Annotations["kcp.io/cluster"] != "system:shards" || len(changed.Status.Capacity) != 2 {
		t.Errorf("the copy has lost what is its own: %+v", changed)
	}
}
