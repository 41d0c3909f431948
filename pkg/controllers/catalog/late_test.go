package catalog

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/controllers/logicalcluster"
	"github.com/regent-project/regent/pkg/controllers/namespace"
	"github.com/regent-project/regent/test/until"
)

// What a late cache shows in deletion may have gone, and another be living under its name.
func TestACachedDeletionTakesNothingFromWhatLives(t *testing.T) {
	s := startShard(t)
	ctx := clusters.With(t.Context(), "x7")
	meta := metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Finalizers: []string{"regent.dev/content"}}
	if _, err := s.deps.Clients.LogicalClusters.Create(ctx, &corev1alpha1.LogicalCluster{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.createWorkspace(t, "x7", "child")
	s.fill(t, "x7")
	before := s.keys(t, "x7")

	now := metav1.Unix(1000, 0)
	meta.UID, meta.DeletionTimestamp, meta.Annotations = "another", &now, map[string]string{"kcp.io/cluster": "x7"}
	for name, d := range map[string]controllers.Descriptor{"cluster": logicalcluster.Descriptor(), "namespace": namespace.Descriptor()} {
		t.Run(name, func(t *testing.T) {
			deps := s.deps
			deps.Clients = s.leader
			if name == "cluster" {
				late := &corev1alpha1.LogicalCluster{ObjectMeta: meta, Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseDeleting}}
				deps.Informers.LogicalClusters = controllertest.Informer(t, controllertest.NewSource(late), nil)
			} else {
				late := &corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}}
				late.Name = "mine"
				deps.Informers.Namespaces = controllertest.Informer(t, controllertest.NewSource(late), nil)
			}
			c, err := d.New(t.Context(), deps)
			if err != nil {
				t.Fatal(err)
			}
			running, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(running) }()
			until.So(t, "it has looked", func() bool {
				health := c.(controllers.Reporter).Report()
				return health.Returned > 0 && health.Pending == 0
			})
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(before, s.keys(t, "x7")); d != "" {
				t.Error(d)
			}
		})
	}
}
