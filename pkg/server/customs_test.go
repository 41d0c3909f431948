package server

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// A user who lets an object block the deletion of its owner needs a right in the owner's resource, which the cluster
// may have defined itself.
func TestTheResourceOfAKindIsThatOfTheRequestsCluster(t *testing.T) {
	definitions := controllertest.NewSource(
		controllertest.Definition("x7", "example.com", "Widget", apiextensionsv1.NamespaceScoped),
		controllertest.Definition("y7", "example.com", "Gadget", apiextensionsv1.ClusterScoped),
	)
	find := resourceIn(controllertest.WithCustom(t, controllers.Informers{}, definitions, nil))
	for _, c := range []struct {
		cluster, kind, want string
		namespaced          bool
	}{
		{"x7", "Widget.example.com", "widgets", true}, {"y7", "Gadget.example.com", "gadgets", false},
		{"y7", "Widget.example.com", "", false}, {"x7", "Gadget.example.com", "", false}, {"x7", "Widget", "", false},
		{"x7", "ConfigMap", "configmaps", true}, {"y7", "Namespace", "namespaces", false},
	} {
		got, namespaced, ok := find(clusters.With(t.Context(), logicalcluster.Name(c.cluster)), schema.ParseGroupKind(c.kind))
		if got.Resource != c.want || namespaced != c.namespaced || ok != (c.want != "") {
			t.Errorf("%s in %s: %v, %v, %v", c.kind, c.cluster, got, namespaced, ok)
		}
	}
}
