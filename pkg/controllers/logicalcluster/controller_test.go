package logicalcluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The deletion of a parent waits until the cache of Workspaces shows none in it, so it must be that cache that wakes it.
func TestAChildsEventsWakeTheParentThatWaitsForIt(t *testing.T) {
	c := &controller{informers: controllers.Informers{LogicalClusters: controllertest.Informer(t, controllertest.NewSource(
		inCluster("living"), inCluster("going", deleted)), nil)}}
	child := func(in, owns string) *tenancyv1alpha1.Workspace {
		return &tenancyv1alpha1.Workspace{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"kcp.io/cluster": in}},
			Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: owns},
		}
	}
	for name, tc := range map[string]struct {
		ws   *tenancyv1alpha1.Workspace
		want []logicalcluster.Name
	}{
		"in a cluster that is deleted": {child("going", "x7"), []logicalcluster.Name{"going", "x7"}},
		"not bound yet":                {child("going", ""), []logicalcluster.Name{"going"}},
		"in a cluster that lives":      {child("living", "x7"), []logicalcluster.Name{"x7"}},
	} {
		if d := cmp.Diff(tc.want, c.related(tc.ws)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestOnlyWhatIsInADeletedClusterWakesIt(t *testing.T) {
	c := &controller{informers: controllers.Informers{LogicalClusters: controllertest.Informer(t, controllertest.NewSource(
		inCluster("living"), inCluster("going", deleted)), nil)}}
	for cluster, want := range map[string]int{"going": 1, "living": 0, "system:admin": 0} {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{"kcp.io/cluster": cluster}}}
		if got := c.dying(obj); len(got) != want {
			t.Errorf("%s: woken %v", cluster, got)
		}
	}
}
