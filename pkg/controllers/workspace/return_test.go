package workspace

import (
	"context"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

// shardWith answers as another shard does that has a LogicalCluster, or none.
type shardWith struct {
	controllers.ShardReader
	lc *corev1alpha1.LogicalCluster
}

func (s shardWith) LogicalCluster(_ context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if s.lc == nil || shard != "eu1" {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), cluster.String())
	}
	return s.lc, nil
}

// Of a cluster that its shard has lost an administrator says which shard has it. It is believed if that shard says so.
func TestAWorkspaceIsToldWhichShardHasItsClusterAgain(t *testing.T) {
	moved, comes := ours("Ready"), ours("Ready")
	moved.Annotations[clusters.MovedAnnotation] = "us1/m1"
	comes.Annotations[clusters.ComingAnnotation] = "now"
	for name, tc := range map[string]struct {
		to          string
		here, there *corev1alpha1.LogicalCluster
		want        string
	}{
		"its own":                             {"root", ours("Ready"), nil, ""},
		"its own, which does not know yet":    {"root", moved, nil, "us1"},
		"its own, which has nothing":          {"root", nil, nil, "us1"},
		"another one":                         {"eu1", nil, ours("Ready"), "eu1"},
		"another one, to which it only comes": {"eu1", nil, comes, "us1"},
		"another one, which has a stranger's": {"eu1", nil, strangers("Ready"), "us1"},
		"one that does not have it":           {"eu1", nil, nil, "us1"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := fresh(withCluster, func(ws *tenancyv1alpha1.Workspace) {
				ws.Labels = map[string]string{clusters.ShardLabel: "us1"}
				ws.Annotations[clusters.ReturnAnnotation] = tc.to
			})
			w := &writes{}
			workspaces, logicalClusters := newStore(w, ws), newStore(w, parent("root"))
			if tc.here != nil {
				logicalClusters.put(tc.here)
			}
			c := leader(t, workspaces, logicalClusters)
			c.others.Live = shardWith{lc: tc.there}
			c.Loop = loop.New(clusters.Range{}, name, 1, func(context.Context, clusters.Key) error { return nil })
			if err := c.reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if is := workspaces.objects[key].Labels[clusters.ShardLabel]; is != tc.want {
				t.Errorf("it says that its cluster is on %q, want %q", is, tc.want)
			}
		})
	}
}
