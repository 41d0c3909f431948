package moves_test

import (
	"errors"
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/moves"
)

// backup is what an etcd was at some moment.
type backup struct {
	of *etcd
	is etcd
}

// restore puts an etcd back, whose leases have ended meanwhile.
func (b *backup) restore() {
	*b.of = b.is
	b.of.expire()
}

// has reports whether an etcd has all of the cluster, and not only because it was about to come when the other one was
// restored.
func (w *world) has(e *etcd) bool {
	return e.lc != nil && (!clusters.IsComing(e.lc) || w.comes(e) && w.network.named == e.name)
}

// comes reports whether all of the cluster has come, and is not there yet.
func (w *world) comes(e *etcd) bool {
	return e.lc != nil && clusters.IsComing(e.lc) && e.lc.Annotations[clusters.CompleteAnnotation] != ""
}

// reconcile is what regent shard reconcile asks the shards for.
func (w *world) reconcile() (acts bool) {
	for _, e := range []*etcd{w.a, w.b} {
		other := w.a
		if e == w.a {
			other = w.b
		}
		switch {
		case e.isServed() && other.isServed() && clusters.EpochOf(other.lc) > clusters.EpochOf(e.lc):
			acts = w.at(e).Concede(w.Context(), team, other.name) == nil || acts
		case e.lc != nil && clusters.HasMoved(e.lc) && !other.isServed():
			acts = w.at(e).Return(w.Context(), team) == nil || acts
		}
	}
	return acts
}

// settle has both leaders end what they have.
func (w *world) settle() {
	for range 6 {
		for _, e := range []*etcd{w.a, w.b} {
			e.expire()
			w.lead(e)
		}
	}
}

// I16: a shard is restored from a backup of before some moves. Once an administrator has had the shards settle that,
// one has the cluster, unless nobody has it any more, and never in an epoch that is earlier than one in which it was
// served.
func TestAfterARestoreOneShardHasAClusterI16(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, latest := newWorld(t), int64(0)
		var kept *backup
		keep := func(e *etcd) func() { return func() { kept = &backup{e, *e} } }
		actions := map[string]func(){
			"begin": w.begin, "step": w.step, "write": w.write, "die": func() { w.next = 0 }, "a's leader": func() { w.lead(w.a) }, "b's leader": func() { w.lead(w.b) },
			"a's freeze ends": w.a.expire, "b's freeze ends": w.b.expire, "a is backed up": keep(w.a), "b is backed up": keep(w.b),
		}
		names := []string{"begin", "step", "step", "step", "step", "step", "step", "write", "die", "a's leader", "b's leader", "a's freeze ends", "b's freeze ends", "a is backed up", "b is backed up"}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 60).Draw(t, "what happens") {
			actions[name]()
			for _, e := range []*etcd{w.a, w.b} {
				if e.isServed() {
					latest = max(latest, clusters.EpochOf(e.lc))
				}
			}
		}
		if kept == nil {
			return
		}
		w.next = 0
		kept.restore()
		isLost := !w.has(w.a) && !w.has(w.b) || w.comes(w.a) && w.comes(w.b) // each waits for the other
		w.settle()
		reconciled := w.reconcile()
		w.settle()
		served := 0
		for _, e := range []*etcd{w.a, w.b} {
			if !e.isServed() {
				continue
			}
			if served++; !e.mayWrite() {
				t.Fatalf("shard %s does not write: %v", e.name, e.lc)
			}
			if reconciled && clusters.EpochOf(e.lc) < latest {
				t.Fatalf("shard %s serves it in epoch %d, and it was served in %d", e.name, clusters.EpochOf(e.lc), latest)
			}
		}
		if served > 1 || served == 0 && !isLost {
			t.Fatalf("%d shards have it: a has %v, b has %v", served, w.a.lc, w.b.lc)
		}
	})
}

// What a restored shard gives up, another one must have, of later; and what a shard takes back, the other one must have
// lost. All else is refused, and says why.
func TestWhatIsNotSoIsNotReconciled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		if err := w.at(w.a).Return(w.Context(), team); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("what has not moved is taken back: %v", err)
		}
		if err := w.at(w.a).Concede(w.Context(), team, "b"); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("it is conceded to a shard that does not have it: %v", err)
		}
		w.network.down = true
		if err := w.at(w.a).Concede(w.Context(), team, "b"); !errors.Is(err, moves.ErrUndecided) {
			t.Errorf("it is conceded to a shard that does not answer: %v", err)
		}
		w.network.down = false
		w.b.put(mustEncode(w.a.lc))
		if err := w.at(w.a).Concede(w.Context(), team, "b"); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("it is conceded to a shard that says it has the same, of no later epoch: %v", err)
		}
		w.b.lc = nil
		for w.begin(); w.next > 0; {
			w.step()
		}
		if err := w.at(w.a).Return(w.Context(), team); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("it is taken back, and the other shard has it: %v", err)
		}
		w.network.down = true
		if err := w.at(w.a).Return(w.Context(), team); !errors.Is(err, moves.ErrUndecided) {
			t.Errorf("it is taken back, and the other shard does not answer: %v", err)
		}
		w.network.down = false
		w.b.lc = nil
		begun := w.a.lc.DeepCopy()
		begun.Annotations[clusters.VacatedAnnotation] = "now"
		half := &etcd{name: "a", lc: begun, revision: w.a.revision, freeze: -1}
		if err := w.at(half).Return(w.Context(), team); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("it is taken back, and some of it was removed: %v", err)
		}
		third := &etcd{name: "c"}
		third.put(mustEncode(half.lc))
		delete(third.lc.Annotations, clusters.MovedAnnotation)
		w.network.all["c"] = third
		if err := w.at(w.a).Return(w.Context(), team); !errors.Is(err, moves.ErrCannotMove) {
			t.Errorf("it is taken back, and a third shard has it: %v", err)
		}
		delete(w.network.all, "c")
		if err := w.at(w.a).Return(w.Context(), team); err != nil {
			t.Errorf("it is not taken back, and the other shard has lost it: %v", err)
		}
		if err := w.at(w.b).Return(w.Context(), team); !apierrors.IsNotFound(err) {
			t.Errorf("what a shard does not have is taken back: %v", err)
		}
		if !w.a.mayWrite() || w.a.lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			t.Errorf("it does not write: %v", w.a.lc)
		}
	})
}
