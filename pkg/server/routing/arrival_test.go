package routing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// annotatedCluster is a LogicalCluster of cluster team.
func annotatedCluster(annotations map[string]string) *corev1alpha1.LogicalCluster {
	out := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{logicalcluster.AnnotationKey: "team"}}}
	for key, value := range annotations {
		out.Annotations[key] = value
	}
	return out
}

var (
	comingFile = annotatedCluster(map[string]string{clusters.ComingAnnotation: "2026-01-01T00:00:00Z"})
	comingHere = annotatedCluster(map[string]string{clusters.ComingAnnotation: "2026-01-01T00:00:00Z", clusters.ComingFromAnnotation: "root/m1"})
	isThere    = annotatedCluster(map[string]string{clusters.ComingFromAnnotation: "root/m1"})
	hasMoved   = annotatedCluster(map[string]string{clusters.MovedAnnotation: "eu1/m2"})
)

// A path to a cluster that has moved away leads to it while it is kept here, so that clients are told where it is. It
// leads through it to none, and another one at its path comes first.
func TestAPathLeadsToWhatHasMovedAway(t *testing.T) {
	at := func(lc *corev1alpha1.LogicalCluster, cluster string) *corev1alpha1.LogicalCluster {
		out := lc.DeepCopy()
		out.Annotations[logicalcluster.AnnotationKey], out.Annotations[core.LogicalClusterPathAnnotationKey] = cluster, "root:a"
		out.Labels = map[string]string{clusters.OwnerShardLabel: "root"}
		return out
	}
	for name, tc := range map[string]struct {
		all  []*corev1alpha1.LogicalCluster
		end  bool
		want logicalcluster.Name
	}{
		"to it":                     {[]*corev1alpha1.LogicalCluster{at(hasMoved, "old")}, true, "old"},
		"through it":                {[]*corev1alpha1.LogicalCluster{at(hasMoved, "old")}, false, ""},
		"to another one":            {[]*corev1alpha1.LogicalCluster{at(hasMoved, "old"), at(isThere, "new")}, true, "new"},
		"not to one that comes":     {[]*corev1alpha1.LogicalCluster{at(comingHere, "new")}, true, ""},
		"through another one's":     {[]*corev1alpha1.LogicalCluster{at(hasMoved, "old"), at(isThere, "new")}, false, "new"},
		"to none, if there is none": {nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			source := controllertest.NewSource[*corev1alpha1.LogicalCluster]()
			for _, lc := range tc.all {
				source.Set(lc)
			}
			d := &Directory{LogicalClusters: controllertest.Informer(t, source, clusters.AssignedIndexers())}
			if name, _ := d.assigned("root:a", tc.end); name != tc.want {
				t.Errorf("it leads to %q, want %q", name, tc.want)
			}
		})
	}
}

func TestRequestsWaitForAClusterThatMovesHere(t *testing.T) {
	for name, tc := range map[string]struct {
		is      *corev1alpha1.LogicalCluster // nil: nothing is known
		after   time.Duration                // when it is there; 0: never
		cancel  time.Duration                // when the client goes; 0: it stays
		waits   time.Duration                // at least
		refused bool
	}{
		"of which nothing is known":        {},
		"that is there":                    {is: isThere},
		"that comes out of a file":         {is: comingFile},
		"that has moved away":              {is: hasMoved},
		"that arrives soon":                {is: comingHere, after: 60 * time.Millisecond, waits: 60 * time.Millisecond},
		"that arrives late":                {is: comingHere, after: 9 * time.Second, waits: 9 * time.Second},
		"that is copied for hours":         {is: comingHere, waits: arrivalPatience, refused: true},
		"and their client does not, again": {is: comingHere, cancel: time.Second, waits: time.Second, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := controllertest.NewSource[*corev1alpha1.LogicalCluster]()
				if tc.is != nil {
					source.Set(tc.is)
				}
				d := &Directory{LogicalClusters: controllertest.Informer(t, source, nil)}
				ctx := t.Context()
				if tc.cancel > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.cancel)
					defer cancel()
				}
				if tc.after > 0 {
					time.AfterFunc(tc.after, func() { source.Set(isThere) })
				}
				began := time.Now()
				err := d.awaitArrival(ctx, "team")
				if took := time.Since(began); took < tc.waits || took > tc.waits+tc.waits/4+arrivalInterval {
					t.Errorf("it waited for %v, want %v", took, tc.waits)
				}
				if (err != nil) != tc.refused || err != nil && !apierrors.IsServiceUnavailable(err) {
					t.Errorf("refused: %v, want %t", err, tc.refused)
				}
			})
		})
	}
}

func TestAClusterThatHasMovedIsNotHere(t *testing.T) {
	for name, tc := range map[string]struct {
		is   *corev1alpha1.LogicalCluster
		want clusters.Move
	}{
		"is there": {is: isThere}, "comes": {is: comingHere}, "has moved": {is: hasMoved, want: clusters.Move{Shard: "eu1", ID: "m2"}},
	} {
		source := controllertest.NewSource(tc.is)
		d := &Directory{LogicalClusters: controllertest.Informer(t, source, nil)}
		moved, _ := errors.AsType[*clusters.MovedError](d.IsHere("team"))
		if moved == nil && tc.want != (clusters.Move{}) || moved != nil && moved.To != tc.want {
			t.Errorf("a cluster that %s: %v", name, moved)
		}
		if err := d.IsHere("another"); err != nil {
			t.Errorf("a cluster of which nothing is known: %v", err)
		}
	}
}
