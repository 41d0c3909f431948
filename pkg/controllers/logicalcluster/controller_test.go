package logicalcluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The deletion of a parent waits until the cache of Workspaces shows none in it, so it must be that cache that wakes
// it.
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

// The sweep leaves out what needs nothing. Whatever the caches show: the reconcile of a key that is left out asks
// nobody anything.
func TestAClusterThatNeedsNothingIsLeftAlone(t *testing.T) {
	phases := []corev1alpha1.LogicalClusterPhaseType{
		"", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady,
		corev1alpha1.LogicalClusterPhaseUnavailable, corev1alpha1.LogicalClusterPhaseDeleting,
	}
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", Annotations: map[string]string{"kcp.io/cluster": "parent"}}}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kcp.io/cluster": "x"}}}
	}
	needed := map[bool]int{}
	for _, phase := range phases {
		for _, owner := range []types.UID{"", "u", "another"} {
			for bits := range 16 {
				lc := inCluster("x")
				lc.Status.Phase = phase
				if owner != "" {
					lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Resource: "workspaces", Name: "a", Cluster: "parent", UID: owner}
				}
				if bits&1 != 0 {
					lc.Finalizers = []string{clusters.ContentFinalizer}
				}
				if bits&2 != 0 {
					lc.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
				}
				namespaces := []*corev1.Namespace{namespace("default")}
				if bits&4 != 0 {
					namespaces = append(namespaces, namespace("kube-system"))
				}
				var workspaces []*tenancyv1alpha1.Workspace
				if bits&8 != 0 {
					workspaces = append(workspaces, workspace)
				}
				c := &controller{informers: controllers.Informers{
					LogicalClusters: controllertest.Informer(t, controllertest.NewSource(lc), nil),
					Namespaces:      controllertest.Informer(t, controllertest.NewSource(namespaces...), nil),
					Workspaces:      controllertest.Informer(t, controllertest.NewSource(workspaces...), nil),
				}}
				needs := c.due(lc)
				needed[needs]++
				if asked := asks(t, c); asked && !needs {
					t.Errorf("a cluster needs nothing, and the server is asked: phase %q, owner %q, %04b", phase, owner, bits)
				}
			}
		}
	}
	if needed[true] == 0 || needed[false] == 0 {
		t.Errorf("needed: %v", needed)
	}
}

// asks reports whether the reconcile of cluster x uses a client: there is none.
func asks(t *testing.T, c *controller) (uses bool) {
	defer func() { uses = recover() != nil }()
	if err := c.reconcile(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	return false
}
