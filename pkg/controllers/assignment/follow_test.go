package assignment

import (
	"context"
	"errors"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

// former answers as the shard does that has had the cluster of the Workspace.
type former struct {
	controllers.ShardReader
	err error
}

func (f former) LogicalCluster(context.Context, string, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return nil, f.err
}

// finder says to which shard all lead that lead to a cluster.
type finder struct {
	at  string
	err error
}

func (f finder) Find(context.Context, logicalcluster.Path) (string, logicalcluster.Name, error) {
	return f.at, "root", f.err
}

// A cluster follows its Workspace to another shard if the former one says that it is there, or has lost it, and then
// only if nobody leads elsewhere.
func TestAClusterFollowsItsWorkspace(t *testing.T) {
	lost := apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "root")
	movedTo := func(shard string) error {
		return &clusters.MovedError{Cluster: "root", To: clusters.Move{Shard: shard, ID: "m1"}}
	}
	for name, tc := range map[string]struct {
		former error
		found  controllers.ShardFinder
		want   string
	}{
		"as its former shard says":                       {movedTo("root"), nil, "root"},
		"not, because it has moved to another one":       {movedTo("asia"), finder{at: "root"}, "us1"},
		"not, because its former shard is down":          {errors.New("down"), finder{at: "root"}, "us1"},
		"because its former shard has lost it":           {lost, finder{at: "root"}, "root"},
		"not, because another one has it, that was lost": {lost, finder{at: "asia"}, "us1"},
		"not, because nobody knows who has it":           {lost, finder{at: "root", err: errors.New("down")}, "us1"},
		"not, because nobody can be asked":               {lost, nil, "us1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &writes{}
			c := &controller{own: "eu1", others: controllers.NewShards("root", former{err: tc.former}), client: w}
			c.others.Homes = tc.found
			c.Loop = loop.New(clusters.Range{}, name, 1, func(context.Context, assigned) error { return nil })
			lc := clusterOf("Ready", ofAnother)
			if err := c.take(clusters.With(t.Context(), ours.cluster), follow, ours, world{shard: "root", heard: true, workspace: assignedTo("eu1"), logicalCluster: lc}); err != nil {
				t.Fatal(err)
			}
			at := "us1"
			if w.spec != nil {
				at = w.spec.Labels[clusters.OwnerShardLabel]
			}
			if at != tc.want {
				t.Errorf("its Workspace is on shard %s by then, want %s", at, tc.want)
			}
		})
	}
}
