package workspace

import (
	"errors"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = clusters.Key{Cluster: "root", Name: "a"}

func TestALeaderThatDiesAtAnyWriteLeavesOneClusterToTheNextI8(t *testing.T) {
	const writesOfACreation = 2 // spec, LogicalCluster
	for crash := 1; crash <= writesOfACreation+1; crash++ {
		w := &writes{crash: crash}
		workspaces := newStore(w, fresh())
		logicalClusters := newStore(w, parent("root"))
		err := leader(t, workspaces, logicalClusters).reconcile(t.Context(), key)
		if crash <= writesOfACreation && !errors.Is(err, errCrashed) {
			t.Fatalf("died at write %d: error %v", crash, err)
		}
		bound := workspaces.objects[key].Spec.Cluster

		w.crash = 0
		if err := leader(t, workspaces, logicalClusters).reconcile(t.Context(), key); err != nil {
			t.Fatalf("died at write %d, next leader: %v", crash, err)
		}
		ws := workspaces.objects[key]
		if bound != "" && ws.Spec.Cluster != bound {
			t.Errorf("died at write %d: cluster %s became %s", crash, bound, ws.Spec.Cluster)
		}
		if len(logicalClusters.objects) != 2 {
			t.Errorf("died at write %d: %d clusters, want root and one more", crash, len(logicalClusters.objects))
		}
		for k, lc := range logicalClusters.objects {
			if k.Cluster != "root" {
				lc.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
				logicalClusters.put(lc)
			}
		}
		if err := leader(t, workspaces, logicalClusters).reconcile(t.Context(), key); err != nil {
			t.Fatalf("died at write %d, once its cluster is Ready: %v", crash, err)
		}
		if ws = workspaces.objects[key]; ws.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			t.Errorf("died at write %d: phase %q", crash, ws.Status.Phase)
		}
	}
}

func TestNothingIsToldOfAClusterThatTheServerRefuses(t *testing.T) {
	w := &writes{}
	workspaces, logicalClusters := newStore(w, fresh(withCluster)), newStore(w, parent("root"))
	logicalClusters.refuse = apierrors.NewConflict(corev1alpha1.Resource("logicalclusters"), "cluster", errors.New("its workspace has gone"))
	err := leader(t, workspaces, logicalClusters).reconcile(t.Context(), key)
	if err != nil || w.done != 1 || workspaces.objects[key].Status.Phase != "" {
		t.Errorf("error %v, %d writes, want the one that is refused; status %+v", err, w.done, workspaces.objects[key].Status)
	}
}

func TestAStaleCacheCannotBindAWorkspaceTwice(t *testing.T) {
	w := &writes{}
	workspaces := newStore(w, fresh())
	stale := world{workspace: workspaces.objects[key], parent: parent("root")}
	c := leader(t, workspaces, newStore(w, parent("root")))
	ctx := clusters.With(t.Context(), "root")
	if _, err := c.take(ctx, schedule, stale); err != nil {
		t.Fatal(err)
	}
	first := workspaces.objects[key].Spec.Cluster
	if _, err := c.take(ctx, schedule, stale); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	if got := workspaces.objects[key].Spec.Cluster; got != first {
		t.Errorf("cluster %s became %s", first, got)
	}
}

func TestADeletedWorkspaceWaitsForItsClusterAndThenGoes(t *testing.T) {
	w := &writes{}
	workspaces := newStore(w, fresh())
	logicalClusters := newStore(w, parent("root"))
	step := func() {
		t.Helper()
		if err := leader(t, workspaces, logicalClusters).reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	step()
	ws := workspaces.objects[key].DeepCopy()
	ws.DeletionTimestamp = &deletedAt
	workspaces.put(ws)
	theirs := clusters.Key{Cluster: "x", Name: "cluster"}
	for k := range logicalClusters.objects {
		if k.Cluster != "root" {
			theirs = k
		}
	}

	step()
	if logicalClusters.objects[theirs].DeletionTimestamp == nil {
		t.Fatal("its LogicalCluster is not deleted")
	}
	step()
	if phase := workspaces.objects[key].Status.Phase; phase == corev1alpha1.LogicalClusterPhaseDeleting {
		t.Error("a write tells of a deletion that waits for nothing")
	}
	waits := logicalClusters.objects[theirs].DeepCopy()
	waits.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
	logicalClusters.put(waits)
	step()
	if phase := workspaces.objects[key].Status.Phase; phase != corev1alpha1.LogicalClusterPhaseDeleting {
		t.Errorf("phase %q", phase)
	}
	logicalClusters.drop(theirs)
	step()
	if _, ok := workspaces.objects[key]; ok {
		t.Error("it has not gone")
	}
}

func TestAWorkspaceIsNotReleasedWhileTheServerKnowsItsCluster(t *testing.T) {
	w := &writes{}
	ws := fresh(withCluster, deleted)
	workspaces := newStore(w, ws)
	logicalClusters := newStore(w, parent("root"), ours("Ready"))
	c := leader(t, workspaces, logicalClusters)
	// The cache does not show the cluster yet.
	next, err := c.take(clusters.With(t.Context(), "root"), confirm, world{workspace: workspaces.objects[key]})
	if err != nil {
		t.Fatal(err)
	}
	if got := decide(*next); got != remove {
		t.Errorf("next step %s, want remove", got)
	}
}

// The cache of Workspaces may be ahead of that of LogicalClusters; then no version guards what is told of the cluster.
func TestAStaleCacheOfClustersMovesNoStatusBack(t *testing.T) {
	w := &writes{}
	ready := tell(ours("Ready"), fresh(withCluster))
	workspaces, logicalClusters := newStore(w, ready), newStore(w, parent("root"), ours("Ready"))
	c := leader(t, workspaces, logicalClusters)
	c.logicalClusters = controllertest.Informer(t, controllertest.NewSource(parent("root"), ours("Initializing")), nil)
	if err := c.reconcile(t.Context(), key); err != nil || w.done != 0 {
		t.Errorf("error %v, %d writes; want none", err, w.done)
	}
	if phase := workspaces.objects[key].Status.Phase; phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Errorf("phase %s", phase)
	}
}

func TestAClustersEventsWakeItsOwnerAndThoseItIsParentOf(t *testing.T) {
	w := &writes{}
	inside := fresh()
	inside.Name, inside.Annotations = "inside", map[string]string{annotation: "x7"}
	done := fresh(withCluster)
	done.Name, done.Annotations = "done", map[string]string{annotation: "x7"}
	done.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
	c := leader(t, newStore(w, inside, done), newStore[*corev1alpha1.LogicalCluster](w))
	lc := ours("Ready")
	lc.Spec.Owner.Resource, lc.Spec.Owner.Name = "workspaces", "a"
	got := c.affected(lc)
	if len(got) != 2 || got[0] != key || got[1] != (clusters.Key{Cluster: "x7", Name: "inside"}) {
		t.Errorf("woken: %v", got)
	}
}
