package regenttest_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/regenttest"
)

// A test has a shard, and a workspace on it.
func ExampleStart() {
	test := func(t *testing.T) {
		server := regenttest.Start(t)
		client, err := kubernetes.NewForConfig(server.Workspace(t, "a").Config)
		if err != nil {
			t.Fatal(err)
		}
		hello := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), hello, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testing.RunTests(nil, []testing.InternalTest{{Name: "TestAgainstAShard", F: test}})
}

// The leader is killed, and the other replica leads.
func ExampleProcess_Kill() {
	test := func(t *testing.T) {
		server := regenttest.Start(t, regenttest.Replicas(2))
		leader := server.Leader(t)
		leader.Kill(t)
		if next := server.Leader(t); next == leader {
			t.Errorf("%s still leads", next.Name())
		}
		leader.Restart(t)
	}
	testing.RunTests(nil, []testing.InternalTest{{Name: "TestTheLeaderIsKilled", F: test}})
}

// The tests of a package share a server.
func ExampleMain() {
	var server *regenttest.Server
	// this is the TestMain
	main := func(m *testing.M) {
		os.Exit(regenttest.Main(m, func(s *regenttest.Server) { server = s }))
	}
	// and this a test
	test := func(t *testing.T) {
		alice := server.User(t, server.Workspace(t, "of-alice").Config, "alice")
		t.Log(alice.Host)
	}
	_, _ = main, test
}
