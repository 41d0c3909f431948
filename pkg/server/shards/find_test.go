package shards

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
)

// forest is what shards say of workspaces. Shard here is the one that asks.
type forest struct {
	// workspaces have "<cluster> <shard>" that they are assigned to, by "<shard> <cluster>/<name>". Their uid is
	// that key.
	workspaces map[string]string
	// clusters have the uid of their owner, by "<shard> <cluster>".
	clusters map[string]string
	down     []string
	asked    int // for Workspaces
}

func (f *forest) Workspace(_ context.Context, shard string, key clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	f.asked++
	uid := shard + " " + key.Cluster.String() + "/" + key.Name
	assigned, ok := f.workspaces[uid]
	if !ok {
		return nil, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), key.Name)
	}
	cluster, to, _ := strings.Cut(assigned, " ")
	out := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: cluster}}
	if to != "" {
		out.Labels = map[string]string{clusters.ShardLabel: to}
	}
	return out, nil
}

func (f *forest) LogicalCluster(_ context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if slices.Contains(f.down, shard) {
		return nil, errors.New("it does not answer")
	}
	owner, ok := f.clusters[shard+" "+cluster.String()]
	if !ok {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "cluster")
	}
	return &corev1alpha1.LogicalCluster{Spec: corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{UID: types.UID(owner)}}}, nil
}

// ownForest is what shard here has.
type ownForest struct{ *forest }

func (o ownForest) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return o.forest.LogicalCluster(ctx, "here", cluster)
}

func (o ownForest) Workspace(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return o.forest.Workspace(ctx, "here", clusters.Key{Cluster: cluster, Name: name})
}

func (f *forest) homes() *Homes {
	return NewHomes(HomesConfig{
		Own: "here", Root: "root", Live: f, Here: ownForest{f},
		Members: func() ([]string, error) { return []string{"a", "b", "root"}, nil },
		Heard: func() map[string]bool {
			out := map[string]bool{}
			for _, shard := range []string{"a", "b", "root"} {
				out[shard] = !slices.Contains(f.down, shard)
			}
			return out
		},
	})
}

func TestAPathIsFollowedThroughAllShards(t *testing.T) {
	planted := func() *forest {
		return &forest{
			workspaces: map[string]string{
				"root root/ours":    "c1 here",
				"root root/theirs":  "c2 a",
				"here c1/deep":      "c3 b",
				"a c2/own":          "c4",
				"a c2/waiting":      "",
				"a c2/forged":       "c1 here", // it owns no such cluster
				"a c2/absent":       "c9 b",
				"a c2/nowhere":      "c9 z",
				"a c2/system":       "system:admin b",
				"a c2/root":         "root root",
				"a c2/slashed":      "../c1 here",
				"root root/stopped": "c5 b",
			},
			clusters: map[string]string{"here c1": "root root/ours", "a c2": "root root/theirs", "b c3": "here c1/deep", "a c4": "a c2/own", "b c5": "root root/stopped"},
		}
	}
	const missing = "not found"
	for path, want := range map[string]string{
		"root":              "root root",
		"root:ours":         "here c1",
		"root:theirs":       "a c2",
		"root:ours:deep":    "b c3",
		"root:theirs:own":   "a c4",
		"c1":                "here c1",
		"c3":                "b c3",
		"c2:own":            "a c4",
		"root:nobody":       missing,
		"c8":                missing,
		"c8:own":            missing,
		"root:theirs:own:x": missing,
		"c2:waiting":        missing,
		"c2:forged":         missing,
		"c2:absent":         missing,
		"c2:nowhere":        "shard z is no member",
		"c2:system":         missing,
		"c2:root":           missing,
		"c2:slashed":        missing,
		"system:admin":      missing,
		"x":                 missing, // too short
	} {
		shard, cluster, err := planted().homes().Find(t.Context(), logicalcluster.NewPath(path))
		got := shard + " " + cluster.String()
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) || apierrors.IsNotFound(err) != (want == missing) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	f := planted()
	f.down = []string{"b"}
	for path, want := range map[string]string{"root:theirs:own": "", "root:ours:deep": "shard b is not heard", "root:stopped": "shard b is not heard", "c8": "shard b is not heard"} {
		_, _, err := f.homes().Find(t.Context(), logicalcluster.NewPath(path))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || apierrors.IsNotFound(err)) {
			t.Errorf("%s, while shard b is down: %v, want %q", path, err, want)
		}
	}
}

func TestAPathIsFollowedAnewAfterSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forest{workspaces: map[string]string{"root root/a": "c1 a"}, clusters: map[string]string{"a c1": "root root/a", "a c2": "root root/a"}}
		h := f.homes()
		leads := func() string {
			_, cluster, err := h.Find(t.Context(), logicalcluster.NewPath("root:a"))
			if err != nil {
				t.Fatal(err)
			}
			return cluster.String()
		}
		first := leads()
		f.workspaces["root root/a"] = "c2 a"
		at := f.asked
		if got := leads(); first != "c1" || got != "c1" || f.asked != at {
			t.Errorf("it leads to %s, and then to %s, after %d questions more", first, got, f.asked-at)
		}
		time.Sleep(followedFor + time.Second)
		if got := leads(); got != "c2" {
			t.Errorf("later it leads to %s", got)
		}
	})
}

// A shard that says that it has another one's cluster does not get what was meant for that.
func TestTwoShardsWithOneClusterAreBothRefused(t *testing.T) {
	f := &forest{clusters: map[string]string{"a c1": "x", "b c1": "y"}}
	if _, _, err := f.homes().Find(t.Context(), logicalcluster.NewPath("c1")); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("%v, want an error that says who has it, too", err)
	}
}
