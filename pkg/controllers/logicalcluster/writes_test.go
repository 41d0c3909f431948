package logicalcluster

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestACacheThatIsBehindOnesOwnWriteIsWaitedFor(t *testing.T) {
	at := func(version string) *corev1alpha1.LogicalCluster {
		return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName, ResourceVersion: version, Annotations: map[string]string{logicalcluster.AnnotationKey: "x"},
		}}
	}
	for name, test := range map[string]struct {
		cached *corev1alpha1.LogicalCluster
		want   bool
	}{
		"older":      {at("9"), true},
		"the write":  {at("10"), false},
		"later":      {at("11"), false},
		"gone":       {nil, false},
		"no version": {at(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			var w writes
			if w.unseen("x", at("1")) {
				t.Error("nothing was written")
			}
			w.add(at("10"))
			if w.unseen("y", at("1")) {
				t.Error("another cluster waits")
			}
			if got := w.unseen("x", test.cached); got != test.want {
				t.Errorf("waits: %v", got)
			}
			if !test.want && len(w.versions) > 0 {
				t.Errorf("it remembers %v for ever", w.versions)
			}
		})
	}
}
