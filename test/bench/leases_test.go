package bench

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election/electiontest"
)

// The list to which the store of electiontest and Regent are held, too: make long-leases. It compiles kube-apiserver.
func TestAKubeAPIServerDoesWhatElectorsTakeForGranted(t *testing.T) {
	k := startKubernetes(t)
	electiontest.CheckLeases(t, k.admin.CoordinationV1().Leases(metav1.NamespaceDefault), "an-example")
}
