// The first test of somebody who has read docs/REGENTTEST.md: it is shown there whole.

package regenttest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/regenttest"
)

func TestAConfigMapOutlivesTheLeader(t *testing.T) {
	server := regenttest.Start(t, regenttest.Replicas(2))
	client := kubernetes.NewForConfigOrDie(server.Workspace(t, "hello").Config)
	configMaps := client.CoreV1().ConfigMaps("default")
	hello := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}
	if _, err := configMaps.Create(t.Context(), hello, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leader := server.Leader(t)
	leader.Kill(t)
	t.Log(leader.Name(), "is followed by", server.Leader(t).Name())
	if _, err := configMaps.Get(t.Context(), "hello", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
