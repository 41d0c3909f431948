package assignment

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

var ours = assigned{shard: "root", workspace: clusters.Key{Cluster: "root", Name: "a"}, cluster: "x7"}

// parent answers as shard root does.
type parent struct {
	controllers.ShardReader
	workspace *tenancyv1alpha1.Workspace
	err       error
}

func (p parent) Workspace(context.Context, string, clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	if p.err == nil && p.workspace == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, "a")
	}
	return p.workspace, p.err
}

// writes keeps what is written about a LogicalCluster, and Events.
type writes struct {
	logicalClusterClient
	spec, status *corev1alpha1.LogicalCluster
	events       map[string]*corev1.Event
	fault        error
}

func (w *writes) Update(_ context.Context, lc *corev1alpha1.LogicalCluster, _ metav1.UpdateOptions) (*corev1alpha1.LogicalCluster, error) {
	w.spec = lc
	return lc, w.fault
}

func (w *writes) UpdateStatus(_ context.Context, lc *corev1alpha1.LogicalCluster, _ metav1.UpdateOptions) (*corev1alpha1.LogicalCluster, error) {
	w.status = lc
	return lc, w.fault
}

type events struct{ *writes }

func (e events) Create(ctx context.Context, event *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	if at, _ := clusters.From(ctx); at != clusters.SystemAdmin {
		return nil, errors.New("an Event that no operator sees")
	}
	e.events[event.Name] = event
	return event, nil
}

// takes takes one step in a world in which the cluster is as cached, and shard root says what live says.
func takes(t *testing.T, s step, cached *corev1alpha1.LogicalCluster, ws *tenancyv1alpha1.Workspace, live parent, fault error) (*writes, error) {
	t.Helper()
	w := &writes{events: map[string]*corev1.Event{}, fault: fault}
	c := &controller{own: "eu1", replica: "r", others: controllers.NewShards("root", live), client: w, events: events{w}}
	return w, c.take(clusters.With(t.Context(), ours.cluster), s, ours, world{shard: "root", heard: true, workspace: ws, logicalCluster: cached})
}

func TestAnOrphanIsMarkedAndToldOfOnceIfItsShardSaysSo(t *testing.T) {
	unreachable, conflict := errors.New("unreachable"), apierrors.NewConflict(schema.GroupResource{}, "cluster", nil)
	for name, tc := range map[string]struct {
		live   parent
		fault  error // of the write
		marked bool
		told   int
		want   error
	}{
		"absent":                   {parent{}, nil, true, 1, nil},
		"another of its name":      {parent{workspace: assignedTo("eu1", reborn)}, nil, true, 1, nil},
		"there":                    {parent{workspace: assignedTo("eu1")}, nil, false, 0, nil},
		"not known":                {parent{err: unreachable}, nil, false, 0, unreachable},
		"absent, marked meanwhile": {parent{}, conflict, true, 0, conflict},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := takes(t, ask, clusterOf("Ready"), nil, tc.live, tc.fault)
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if marked := w.status != nil && conditions.IsTrue(w.status, clusters.ConditionOrphaned); marked != tc.marked {
				t.Errorf("marked: %t", marked)
			}
			if len(w.events) != tc.told {
				t.Errorf("%d Events", len(w.events))
			}
			for _, e := range w.events {
				if e.Type != corev1.EventTypeWarning || e.Reason != "Orphaned" || e.InvolvedObject.Kind != "LogicalCluster" || e.Namespace != metav1.NamespaceDefault {
					t.Errorf("the Event is %+v", e)
				}
			}
		})
	}
}

// The cache may show a Workspace that adopts, though its shard has none of the kind any more.
func TestAnOrphanGetsTheOwnerThatItsShardShowsNow(t *testing.T) {
	cached := assignedTo("eu1", adopting("x7"))
	for name, tc := range map[string]struct {
		live *tenancyv1alpha1.Workspace
		want bool
	}{
		"as cached":            {cached, true},
		"gone":                 {nil, false},
		"another one":          {assignedTo("eu1", adopting("x7"), func(ws *tenancyv1alpha1.Workspace) { ws.UID = "third" }), false},
		"being deleted":        {assignedTo("eu1", adopting("x7"), deleted), false},
		"adopts nothing":       {assignedTo("eu1", reborn), false},
		"adopts another":       {assignedTo("eu1", adopting("x8")), false},
		"has another cluster":  {assignedTo("eu1", adopting("x7"), func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "x8" }), false},
		"has no cluster (yet)": {assignedTo("eu1", adopting("x7"), func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			before := clusterOf("Ready", marked)
			w, err := takes(t, adopt, before, cached, parent{workspace: tc.live}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if (w.spec != nil) != tc.want || w.status != nil {
				t.Fatalf("written: %+v", w)
			}
			if w.spec == nil {
				return
			}
			owner := *w.spec.Spec.Owner
			if owner.UID != cached.UID {
				t.Errorf("owner %+v", owner)
			}
			if owner.UID = before.Spec.Owner.UID; owner != *before.Spec.Owner {
				t.Errorf("more than the uid has changed: %+v", w.spec.Spec.Owner)
			}
			if w.spec.ResourceVersion != before.ResourceVersion {
				t.Error("the write does not say what it was decided on")
			}
		})
	}
}
