package logicalcluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

func annotation(key, value string) func(*corev1alpha1.LogicalCluster) {
	return func(lc *corev1alpha1.LogicalCluster) { lc.Annotations[key] = value }
}

var hasMoved = annotation(clusters.MovedAnnotation, "eu1/m1")

// child is a Ready cluster of a Workspace in cluster parent, as this shard, root, has it.
func child(ownerShard string) *corev1alpha1.LogicalCluster {
	lc := inCluster("child")
	lc.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Resource: "workspaces", Name: "a", Cluster: "parent", UID: "u"}
	if ownerShard != "" {
		lc.Labels = map[string]string{clusters.OwnerShardLabel: ownerShard}
	}
	return lc
}

func workspaceIn(cluster string, uid types.UID, shard string) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, Annotations: map[string]string{"kcp.io/cluster": cluster}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: "child"},
	}
	if shard != "" {
		ws.Labels = map[string]string{clusters.ShardLabel: shard}
	}
	return ws
}

func cached(t *testing.T, lcs []*corev1alpha1.LogicalCluster, workspaces ...*tenancyv1alpha1.Workspace) *controller {
	t.Helper()
	return &controller{shard: "root", informers: controllers.Informers{
		LogicalClusters: controllertest.Informer(t, controllertest.NewSource(lcs...), nil),
		Workspaces:      controllertest.Informer(t, controllertest.NewSource(workspaces...), nil),
	}}
}

// The cluster of a Workspace knows on which shard that is, also when the Workspace's own cluster has moved.
func TestAClusterFollowsItsWorkspaceToAnotherShard(t *testing.T) {
	for name, tc := range map[string]struct {
		parent    *corev1alpha1.LogicalCluster
		workspace *tenancyv1alpha1.Workspace
		before    string
		want      string // no: it does not follow
	}{
		"nothing has moved":         {inCluster("parent"), workspaceIn("parent", "u", ""), "", "no"},
		"it has moved away":         {inCluster("parent", hasMoved), workspaceIn("parent", "u", ""), "", "eu1"},
		"it has moved there before": {inCluster("parent", hasMoved), workspaceIn("parent", "u", ""), "eu1", "no"},
		"it has come here":          {inCluster("parent"), workspaceIn("parent", "u", ""), "eu1", ""},
		"it comes":                  {inCluster("parent", annotation(clusters.ComingAnnotation, "now")), workspaceIn("parent", "u", ""), "eu1", "no"},
		"it is not here":            {inCluster("other"), workspaceIn("other", "u", ""), "eu1", "no"},
		"another Workspace":         {inCluster("parent"), workspaceIn("parent", "v", ""), "eu1", "no"},
	} {
		t.Run(name, func(t *testing.T) {
			lc := child(tc.before)
			c := cached(t, []*corev1alpha1.LogicalCluster{tc.parent, lc}, tc.workspace)
			got := "no"
			if out := c.rehomed(lc); out != nil {
				got = out.Labels[clusters.OwnerShardLabel]
			}
			if got != tc.want || got != "no" && !c.due(lc) {
				t.Errorf("its Workspace is on %q, want %q; due: %t", got, tc.want, c.due(lc))
			}
		})
	}
}

func TestTheClustersOfItsWorkspacesAreToldWhenAClusterMoves(t *testing.T) {
	parent := inCluster("parent", hasMoved)
	c := cached(t, []*corev1alpha1.LogicalCluster{parent, child("")}, workspaceIn("parent", "u", ""))
	if d := cmp.Diff([]logicalcluster.Name{"child"}, c.children(parent)); d != "" {
		t.Error(d)
	}
	if got := c.children(inCluster("parent")); len(got) > 0 {
		t.Errorf("%q are told, and nothing has moved", got)
	}
}

// elsewhere is another shard, as it answers.
type elsewhere struct {
	lc        *corev1alpha1.LogicalCluster
	lcErr     error
	workspace *tenancyv1alpha1.Workspace
	wsErr     error
}

func (e *elsewhere) LogicalCluster(context.Context, string, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return e.lc, e.lcErr
}

func (e *elsewhere) Workspace(context.Context, string, clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	return e.workspace, e.wsErr
}

// vacated counts what is removed.
type vacated struct {
	controllers.Moves
	n int
}

func (v *vacated) Vacate(context.Context, *corev1alpha1.LogicalCluster) error { v.n++; return nil }

// What a cluster had is removed only once its new shard has it, and nobody leads here any more.
func TestWhatHasMovedIsRemovedLast(t *testing.T) {
	notFound := apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "x")
	// as shards.Reader says it
	goneElsewhere := errors.Join(notFound, &clusters.MovedError{Cluster: "child", To: clusters.Move{Shard: "asia", ID: "m2"}})
	there, before := child("us1"), child("us1")
	there.Annotations[clusters.EpochAnnotation] = "1"
	for name, tc := range map[string]struct {
		answers elsewhere
		want    int
	}{
		"all say so":                         {elsewhere{lc: there, workspace: workspaceIn("parent", "u", "eu1")}, 1},
		"its Workspace names this shard":     {elsewhere{lc: there, workspace: workspaceIn("parent", "u", "root")}, 0},
		"its Workspace is gone":              {elsewhere{lc: there, wsErr: notFound}, 1},
		"the shard of the Workspace is down": {elsewhere{lc: there, wsErr: errors.New("down")}, 0},
		"its new shard is down":              {elsewhere{lcErr: errors.New("down"), workspace: workspaceIn("parent", "u", "eu1")}, 0},
		"it comes there":                     {elsewhere{lc: inCluster("child", annotation(clusters.ComingAnnotation, "now")), workspace: workspaceIn("parent", "u", "eu1")}, 0},
		"its new shard has lost it":          {elsewhere{lcErr: notFound, workspace: workspaceIn("parent", "u", "eu1")}, 0},
		"its new shard has it as it was":     {elsewhere{lc: before, workspace: workspaceIn("parent", "u", "eu1")}, 0},
		"it has moved on":                    {elsewhere{lcErr: goneElsewhere, workspace: workspaceIn("parent", "u", "asia")}, 0},
		"it has moved on, and was deleted":   {elsewhere{lcErr: goneElsewhere, wsErr: notFound}, 0},
		"it was deleted":                     {elsewhere{lcErr: notFound, wsErr: notFound}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lc := child("us1")
				hasMoved(lc)
				c := cached(t, []*corev1alpha1.LogicalCluster{lc})
				v := &vacated{}
				c.moves, c.others = v, controllers.NewShards("root", &tc.answers)
				c.Loop = loop.New(clusters.Range{}, name, 1, func(context.Context, logicalcluster.Name) error { return nil })
				if err := c.move(t.Context(), lc); err != nil || v.n != 0 {
					t.Errorf("removed %d times, while requests of before may still ask where it is: %v", v.n, err)
				}
				time.Sleep(vacateAfter)
				if err := c.move(t.Context(), lc); err != nil || v.n != tc.want {
					t.Errorf("removed %d times, want %d: %v", v.n, tc.want, err)
				}
			})
		})
	}
}

// tally counts what is asked about each cluster.
type tally struct {
	elsewhere
	asked map[logicalcluster.Name]int
}

func (c *tally) LogicalCluster(_ context.Context, _ string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	c.asked[cluster]++
	return ownedBy(cluster.String(), "eu1"), nil
}

// ownedBy returns the LogicalCluster of a Workspace in cluster parent, which is on a shard, as it knows.
func ownedBy(cluster, shard string) *corev1alpha1.LogicalCluster {
	lc := inCluster(cluster)
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Name: cluster, Cluster: "parent", UID: types.UID("of-" + cluster)}
	lc.Labels = map[string]string{clusters.OwnerShardLabel: shard}
	return lc
}

// A cluster that has moved may have thousands of workspaces on other shards. Each of their shards is asked once whether
// it has followed, and not before it may have.
func TestOtherShardsAreAskedOnceWhetherAWorkspaceHasFollowed(t *testing.T) {
	const n = 100
	var all []*tenancyv1alpha1.Workspace
	var still []*corev1alpha1.LogicalCluster
	for i := range n {
		cluster := fmt.Sprintf("c%d", i)
		ws := workspaceIn("parent", types.UID("of-"+cluster), "us1")
		ws.Name, ws.Spec.Cluster = cluster, cluster
		all = append(all, ws)
		if i%10 == 0 { // these shard us1 tells of as those of Workspaces of this shard
			still = append(still, ownedBy(cluster, "root"))
		}
	}
	c, others := cached(t, nil, all...), &tally{asked: map[logicalcluster.Name]int{}}
	c.others = controllers.NewShards("root", others)
	c.others.LogicalClusters.Add("us1", controllertest.Informer(t, controllertest.NewSource(still...), nil))
	for range 3 {
		follows := 0
		for _, ws := range all {
			if c.hasFollowed(t.Context(), ws, "eu1") {
				follows++
			}
		}
		if want := n - len(still); follows != want {
			t.Errorf("%d have followed, want %d", follows, want)
		}
	}
	for cluster, times := range others.asked {
		if times != 1 {
			t.Errorf("cluster %s was asked about %d times", cluster, times)
		}
	}
	if len(others.asked) != n-len(still) {
		t.Errorf("%d clusters were asked about", len(others.asked))
	}
	c.followers.forget("parent")
	if c.hasFollowed(t.Context(), all[1], "eu1"); others.asked["c1"] != 2 {
		t.Error("what was known before a return is believed after it")
	}
}
