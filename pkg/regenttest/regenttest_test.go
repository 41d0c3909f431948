package regenttest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/regenttest"
)

func TestAShardInOneLine(t *testing.T) {
	server := regenttest.Start(t)
	client, err := kubernetes.NewForConfig(server.Workspace(t, "a").Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAnInstallation(t *testing.T) {
	server := regenttest.Start(t, regenttest.Shards(2), regenttest.Replicas(2))
	server.Workspace(t, "a")
	server.Workspace(t, "b")
	server.Workspace(t, "b:c")
	for _, shard := range server.Shards {
		t.Log(shard.Leader(t).Name())
	}
}
