package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

var toEU = clusters.Move{Shard: "eu1", ID: "m1"}

func (w *world) leave() storage.Freeze {
	w.t.Helper()
	f, err := w.client.Leave(w.t.Context(), "root", lcOf("leaving"), w.revisionOf("root"), "it moves")
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// A cluster that leaves is frozen, and each of the ways on ends that: it stays, it remains because nobody has renewed
// the freeze, or it departs, for ever.
func TestAClusterThatLeavesIsFrozenUntilItIsDecided(t *testing.T) {
	t.Parallel()
	w := comingWorld(t)
	before := w.revisionOf("root")
	f := w.leave()
	if _, err := w.client.Leave(t.Context(), "root", lcOf("leaving"), before, "it moves"); !errors.Is(err, storage.ErrFrozen) {
		t.Errorf("it leaves twice: %v", err)
	}
	if err := w.client.Remain(t.Context(), "root", lcOf("Ready"), w.revisionOf("root")); !errors.Is(err, storage.ErrFrozen) {
		t.Errorf("it remains, though it may still depart: %v", err)
	}
	if err := w.client.Stay(t.Context(), f, lcOf("Ready")); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("it departs, and has stayed: %v", err)
	}
	if _, err := w.client.Leave(t.Context(), "root", lcOf("leaving"), before, "it moves"); !errors.Is(err, storage.ErrDecided) {
		t.Errorf("it leaves by what it was: %v", err)
	}

	f = w.leave()
	w.expire(f)
	if err := w.client.Remain(t.Context(), "root", lcOf("Ready"), f.Revision); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("it departs, and its freeze has ended: %v", err)
	}

	f = w.leave()
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Stay(t.Context(), f, lcOf("Ready")); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("it stays, and has departed: %v", err)
	}
}

// Whoever writes in a cluster that has departed learns where it is, also if the write waited before.
func TestWritesInAClusterThatHasDepartedAreToldWhereItIs(t *testing.T) {
	t.Parallel()
	w := comingWorld(t)
	f := w.leave()
	waiting := make(chan error, 1) // so that the write ends if nobody waits for it any more
	write := func() error {
		return w.objects.Create(w.admin, "/core/configmaps/default/late", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}, nil, 0)
	}
	go func() { waiting <- write() }()
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); err != nil {
		t.Fatal(err)
	}
	for n, err := range []error{<-waiting, write()} {
		moved, ok := errors.AsType[*clusters.MovedError](err)
		if !ok || moved.To != toEU || clusters.MoveIn(moved.Status()) != toEU {
			t.Errorf("write %d: %v", n, err)
		}
		if apierrors.IsNotFound(err) {
			t.Errorf("write %d is told that there is no such cluster", n)
		}
	}
}

// What a cluster had that has departed is removed as a whole, object by object, and nothing of another one is.
func TestAClusterThatHasDepartedIsRemoved(t *testing.T) {
	t.Parallel()
	w := comingWorld(t)
	f := w.leave()
	if err := w.client.Write(t.Context(), f, []storage.Stored{mapOf("a"), mapOf("b"), mapOf("c")}, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := w.client.Count(t.Context(), "root"); err != nil || n != 3 {
		t.Errorf("it has %d objects: %v", n, err)
	}
	other := w.come(comes)
	if err := w.client.Vacate(t.Context(), "root", lcOf("moved"), f.Revision-1); !errors.Is(err, storage.ErrDecided) {
		t.Errorf("it is removed by what it was: %v", err)
	}
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Vacate(t.Context(), "root", lcOf("moved"), w.revisionOf("root")); err != nil {
		t.Fatal(err)
	}
	if left := w.keysOf("root"); len(left) > 0 {
		t.Errorf("etcd still has %q", left)
	}
	if err := w.client.Renew(t.Context(), other); err != nil || len(w.keysOf(comes)) == 0 {
		t.Errorf("another cluster has lost something: %v", err)
	}
}

// A cluster that has departed is here again if the other shard has lost it, and writes that are made here are made. One
// that is here has departed if it was restored, and writes are told where it is.
func TestAfterARestoreAnAdministratorSaysWhereAClusterIs(t *testing.T) {
	t.Parallel()
	w := comingWorld(t)
	write := func(name string) error {
		return w.objects.Create(w.admin, "/core/configmaps/default/"+name, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}, nil, 0)
	}
	f := w.leave()
	if err := w.client.Concede(t.Context(), "root", lcOf("moved"), f.Revision, toEU); !errors.Is(err, storage.ErrFrozen) {
		t.Errorf("it is conceded while it may leave: %v", err)
	}
	if err := w.client.Return(t.Context(), "root", lcOf("Ready"), f.Revision, toEU); !errors.Is(err, storage.ErrDecided) {
		t.Errorf("it returns, and has not departed: %v", err)
	}
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Return(t.Context(), "root", lcOf("Ready"), w.revisionOf("root"), clusters.Move{Shard: "eu1", ID: "another"}); !errors.Is(err, storage.ErrDecided) {
		t.Errorf("it returns from a move that it has not made: %v", err)
	}
	if err := w.client.Return(t.Context(), "root", lcOf("Ready"), w.revisionOf("root"), toEU); err != nil {
		t.Fatal(err)
	}
	if err := write("here-again"); err != nil {
		t.Errorf("a write after its return: %v", err)
	}
	if err := w.client.Concede(t.Context(), "root", lcOf("moved"), w.revisionOf("root")-1, toEU); !errors.Is(err, storage.ErrDecided) {
		t.Errorf("it is conceded by what it was: %v", err)
	}
	if err := w.client.Concede(t.Context(), "root", lcOf("moved"), w.revisionOf("root"), toEU); err != nil {
		t.Fatal(err)
	}
	if moved, ok := errors.AsType[*clusters.MovedError](write("conceded")); !ok || moved.To != toEU {
		t.Errorf("a write after that is not told where it is")
	}
}

// A cluster that comes from another shard, and whoever has begun with it dies: under the freeze of Reclaim it arrives,
// or is discarded, and the first one writes no more.
func TestAClusterWhoseMoverHasDiedIsReclaimed(t *testing.T) {
	t.Parallel()
	w := comingWorld(t)
	f := w.come(comes)
	if _, err := w.client.Reclaim(t.Context(), comes, f.Revision); !errors.Is(err, storage.ErrFrozen) {
		t.Errorf("it is reclaimed, and somebody moves it: %v", err)
	}
	if err := w.client.Complete(t.Context(), f, lcOf("complete"), f.Revision); err != nil {
		t.Fatal(err)
	}
	w.expire(f)
	if _, err := w.client.Reclaim(t.Context(), comes, f.Revision); !errors.Is(err, storage.ErrDecided) {
		t.Errorf("it is reclaimed by what it was: %v", err)
	}
	mine, err := w.client.Reclaim(t.Context(), comes, w.revisionOf(comes))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Write(t.Context(), f, []storage.Stored{mapOf("late")}, nil); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("whoever had begun still writes: %v", err)
	}
	if err := w.client.Arrive(t.Context(), f, lcOf("there"), w.revisionOf(comes)); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("it arrives under a freeze that has ended: %v", err)
	}
	if err := w.client.Arrive(t.Context(), mine, lcOf("there"), w.revisionOf(comes)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Freeze(t.Context(), comes, "it is thawed"); err != nil {
		t.Errorf("it is still frozen: %v", err)
	}
}

// What is removed of a cluster that has moved is no deletion. One that is watched is asked about, and many at once:
// others wait for it, who have nothing to do with these.
func TestNobodyHearsOfTheRemovalOfWhatHasMoved(t *testing.T) {
	t.Parallel()
	w := comingWorld(t)
	w.client.MayMove()
	asked := 0
	w.client.CountReads(func() { asked++ })
	f := w.leave()
	if err := w.client.Depart(t.Context(), f, lcOf("moved"), toEU); err != nil {
		t.Fatal(err)
	}
	const many = 200
	ended, keys := map[logicalcluster.Name]func() bool{"root": w.client.Watch("root")}, []string{"/core/configmaps/root/default/a", "/core/configmaps/root/default/b"}
	for n := range many {
		cluster := logicalcluster.Name(fmt.Sprintf("still%d", n))
		ended[cluster] = w.client.Watch(cluster)
		keys = append(keys, "/core/configmaps/"+cluster.String()+"/default/a")
	}
	keys = append(keys, "/core/configmaps/unwatched/default/a")
	for _, tc := range []struct {
		what     string
		revision int64
		want     int
	}{
		{"deletions in many", w.revisionOf("root"), (many + storage.OpsAtOnce) / storage.OpsAtOnce}, {"and again, of before", 1, 0},
	} {
		asked = 0
		w.client.HearDeletions(t.Context(), tc.revision, keys...)
		if asked != tc.want {
			t.Errorf("%s: %d reads of etcd, want %d", tc.what, asked, tc.want)
		}
	}
	for cluster, ended := range ended {
		if ended() != (cluster == "root") {
			t.Errorf("a watch of %s: ended %t", cluster, ended())
		}
	}
}
