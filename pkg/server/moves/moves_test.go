package moves_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/moves"
	"github.com/regent-project/regent/pkg/server/storage"
)

const team logicalcluster.Name = "team"

// etcd is what a shard stores of one logical cluster: its LogicalCluster, its freeze, and how often its objects were
// written.
type etcd struct {
	name     string
	lc       *corev1alpha1.LogicalCluster
	revision int64
	freeze   int64 // the revision at which it began; 0: it is not frozen
	objects  int64
}

// holds reports whether a freeze goes on.
func (e *etcd) holds(f storage.Freeze) bool { return e.freeze != 0 && e.freeze == f.Revision }

func (e *etcd) put(lc storage.Stored) {
	e.revision++
	e.lc = &corev1alpha1.LogicalCluster{}
	if err := json.Unmarshal(lc.JSON, e.lc); err != nil {
		panic(err)
	}
	e.lc.ResourceVersion = fmt.Sprint(e.revision)
}

// begin freezes the cluster if its LogicalCluster has a revision.
func (e *etcd) begin(revision int64, lc *storage.Stored) (storage.Freeze, error) {
	switch {
	case e.freeze != 0:
		return storage.Freeze{}, storage.ErrFrozen
	case e.at() != revision:
		return storage.Freeze{}, storage.ErrDecided
	}
	if e.revision++; lc != nil {
		e.put(*lc)
	}
	e.freeze = e.revision
	return storage.Freeze{Cluster: team, Revision: e.revision}, nil
}

// at returns the revision of the LogicalCluster.
func (e *etcd) at() (n int64) {
	if e.lc != nil {
		_, _ = fmt.Sscan(e.lc.ResourceVersion, &n)
	}
	return n
}

func (e *etcd) Leave(_ context.Context, _ logicalcluster.Name, lc storage.Stored, revision int64, _ string) (storage.Freeze, error) {
	return e.begin(revision, &lc)
}

func (e *etcd) Come(_ context.Context, _ logicalcluster.Name, lc storage.Stored, _ string) (storage.Freeze, error) {
	return e.begin(0, &lc)
}

func (e *etcd) Reclaim(_ context.Context, _ logicalcluster.Name, revision int64) (storage.Freeze, error) {
	return e.begin(revision, nil)
}

func (e *etcd) Stay(_ context.Context, f storage.Freeze, lc storage.Stored) error {
	if !e.holds(f) || e.at() != f.Revision {
		return storage.ErrThawed
	}
	e.put(lc)
	e.freeze = 0
	return nil
}

func (e *etcd) Depart(_ context.Context, f storage.Freeze, lc storage.Stored, _ clusters.Move) error {
	if !e.holds(f) || e.at() != f.Revision {
		return storage.ErrThawed
	}
	e.put(lc)
	e.freeze = -1 // for ever
	return nil
}

func (e *etcd) Remain(_ context.Context, _ logicalcluster.Name, lc storage.Stored, revision int64) error {
	switch {
	case e.freeze != 0:
		return storage.ErrFrozen
	case e.at() != revision:
		return storage.ErrDecided
	}
	e.put(lc)
	return nil
}

func (e *etcd) Complete(_ context.Context, f storage.Freeze, lc storage.Stored, revision int64) error {
	if !e.holds(f) || e.at() != revision {
		return storage.ErrThawed
	}
	e.put(lc)
	return nil
}

func (e *etcd) Arrive(_ context.Context, f storage.Freeze, lc storage.Stored, revision int64) error {
	if !e.holds(f) || e.at() != revision {
		return storage.ErrThawed
	}
	e.put(lc)
	e.freeze = 0
	return nil
}

func (e *etcd) Discard(_ context.Context, _ logicalcluster.Name, revision int64, by *storage.Freeze) error {
	if !e.holds(*by) || e.at() != revision {
		return storage.ErrThawed
	}
	e.lc, e.freeze, e.objects = nil, 0, 0
	return nil
}

func (e *etcd) Interrupt(_ context.Context, _ logicalcluster.Name, revision int64) error {
	if e.at() != revision {
		return storage.ErrDecided
	}
	e.freeze = 0
	return nil
}

func (e *etcd) Concede(ctx context.Context, _ logicalcluster.Name, lc storage.Stored, revision int64, _ clusters.Move) error {
	if err := e.Remain(ctx, team, lc, revision); err != nil {
		return err
	}
	e.freeze = -1 // for ever
	return nil
}

func (e *etcd) Return(_ context.Context, _ logicalcluster.Name, lc storage.Stored, revision int64, _ clusters.Move) error {
	if e.freeze != -1 || e.at() != revision {
		return storage.ErrDecided
	}
	e.put(lc)
	e.freeze = 0
	return nil
}

func (e *etcd) Vacate(_ context.Context, _ logicalcluster.Name, _ storage.Stored, revision int64) error {
	if e.at() != revision {
		return storage.ErrDecided
	}
	e.lc, e.freeze, e.objects = nil, 0, 0
	return nil
}

func (e *etcd) Count(context.Context, logicalcluster.Name) (int64, error) { return e.objects, nil }

// LogicalCluster implements routing.Live.
func (e *etcd) LogicalCluster(context.Context, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if e.lc == nil {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), team.String())
	}
	return e.lc.DeepCopy(), nil
}

func (e *etcd) Workspace(context.Context, logicalcluster.Name, string) (*tenancyv1alpha1.Workspace, error) {
	return nil, errors.New("nobody asks")
}

// isServed reports whether users are served, and mayWrite whether their writes are made.
func (e *etcd) isServed() bool {
	return e.lc != nil && !clusters.IsComing(e.lc) && !clusters.HasMoved(e.lc)
}
func (e *etcd) mayWrite() bool { return e.isServed() && e.freeze == 0 }

// network reads another shard, if it answers.
type network struct {
	all  map[string]*etcd
	down bool
	// named is the shard that the Workspace says has the cluster.
	named string
}

func (n *network) LogicalCluster(ctx context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if n.down {
		return nil, errors.New("it does not answer")
	}
	lc, err := n.all[shard].LogicalCluster(ctx, cluster)
	switch {
	case err == nil && clusters.HasMoved(lc): // it is a NotFound, too
		return nil, errors.Join(apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), cluster.String()), &clusters.MovedError{Cluster: cluster, To: clusters.MovedTo(lc)})
	case err == nil && clusters.IsComing(lc): // users wait for it
		return nil, apierrors.NewServiceUnavailable("it comes")
	}
	return lc, err
}

// nowhereBut returns an error if another shard than one has a logical cluster, or may have it.
func (n *network) nowhereBut(own string) func(context.Context, logicalcluster.Name) error {
	return func(ctx context.Context, cluster logicalcluster.Name) error {
		for name := range n.all {
			if _, err := n.LogicalCluster(ctx, name, cluster); name != own && !apierrors.IsNotFound(err) {
				return fmt.Errorf("shard %s does not say that it has nothing: %w", name, err)
			}
		}
		return nil
	}
}

func (n *network) Workspace(context.Context, string, clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	if n.down {
		return nil, errors.New("it does not answer")
	}
	return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusters.ShardLabel: n.named}}}, nil
}

// world is two shards, between which a logical cluster moves, and whoever moves it.
type world struct {
	*rapid.T
	a, b    *etcd
	network *network
	written int64 // how often users have written

	// of the move under way
	from, to          *etcd
	arriving, leaving storage.Freeze
	departure         *moves.Departure
	next              int
	move              clusters.Move
	moves             int
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, a: &etcd{name: "a"}, b: &etcd{name: "b"}}
	w.network = &network{all: map[string]*etcd{"a": w.a, "b": w.b}, named: "a"}
	w.a.put(mustEncode(&corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, UID: types.UID("u"), Annotations: map[string]string{
			logicalcluster.AnnotationKey: team.String(), core.LogicalClusterPathAnnotationKey: "root:team",
		}},
		Spec:   corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Name: "team", Cluster: "root"}},
		Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
	}))
	return w
}

func mustEncode(lc *corev1alpha1.LogicalCluster) storage.Stored {
	encoded, err := moves.Encode(lc)
	if err != nil {
		panic(err)
	}
	return encoded
}

func (w *world) at(e *etcd) *moves.Moves {
	return &moves.Moves{Shard: e.name, Store: e, Live: e, Bindings: &copies{}, Others: w.network, NowhereElse: w.network.nowhereBut(e.name), BaseURL: "https://regent", Seen: func() int64 { return e.revision }}
}

// begin begins to move the cluster from where it is, unless a move is under way.
func (w *world) begin() {
	if w.next != 0 {
		return
	}
	w.from, w.to = w.a, w.b
	if w.b.isServed() {
		w.from, w.to = w.b, w.a
	}
	if !w.from.isServed() {
		return
	}
	w.moves++
	w.move = clusters.Move{Shard: w.from.name, ID: fmt.Sprintf("m%d", w.moves)}
	var err error
	if w.arriving, err = w.at(w.to).Begin(w.Context(), w.from.lc, "root", w.move, "boss"); err == nil {
		w.next = 1
	}
}

// step takes the next step of a move. If it fails, whoever moves gives up, without a word.
func (w *world) step() {
	there := clusters.Move{Shard: w.toName(), ID: w.move.ID}
	var err error
	switch w.next {
	case 0:
		return
	case 1, 3: // all that is there, and the rest
		if !w.to.holds(w.arriving) {
			err = storage.ErrThawed
		} else {
			w.to.objects = w.from.objects
		}
	case 2:
		if w.departure, err = w.at(w.from).Leave(w.Context(), team, there, "boss"); err == nil {
			w.leaving = w.departure.Freeze
		}
	case 4:
		err = w.at(w.to).Complete(w.Context(), w.arriving, w.departure.LogicalCluster, w.departure.Objects, storage.Resume{})
	case 5:
		err = w.at(w.from).Depart(w.Context(), w.leaving, there)
	case 6:
		err = w.at(w.to).Arrive(w.Context(), w.arriving, w.move)
	}
	if w.next++; err != nil || w.next > 6 {
		w.next = 0
	}
}

func (w *world) toName() string {
	if w.to == nil {
		return ""
	}
	return w.to.name
}

// undo is what whoever moves does before the switch who is asked to stop.
func (w *world) undo() {
	if w.next == 0 || w.next > 5 {
		return
	}
	if w.next > 2 {
		_ = w.at(w.from).Stay(w.Context(), w.leaving)
	}
	_ = w.at(w.to).Cancel(w.Context(), w.arriving)
	w.next = 0
}

// cancel is what somebody else does who does not want it to move.
func (w *world) cancel() {
	for _, e := range []*etcd{w.a, w.b} {
		if e.lc != nil {
			_ = w.at(e).Interrupt(w.Context(), team)
		}
	}
}

// lead is what the leader of a shard does.
func (w *world) lead(e *etcd) {
	if e.lc == nil {
		return
	}
	m, other := w.at(e), w.a
	if e == w.a {
		other = w.b
	}
	switch {
	case clusters.IsComing(e.lc):
		_ = m.End(w.Context(), e.lc)
	case clusters.HasMoved(e.lc):
		if other.isServed() && !w.network.down {
			w.network.named = other.name
			_ = m.Vacate(w.Context(), e.lc)
		}
	case clusters.Leaving(e.lc) != clusters.Move{}:
		_ = m.Remain(w.Context(), e.lc)
	}
}

// expire ends a freeze that was not renewed.
func (e *etcd) expire() {
	if e.freeze > 0 {
		e.freeze = 0
	}
}

func (w *world) write() {
	for _, e := range []*etcd{w.a, w.b} {
		if e.mayWrite() {
			w.written++
			e.objects++
		}
	}
}

// check checks that one shard has the cluster at most, with all that was written; none has it only between the switch
// and its end, and then the other one has all of it.
func (w *world) check() {
	served := 0
	for _, e := range []*etcd{w.a, w.b} {
		if e.isServed() {
			if served++; e.objects != w.written {
				w.Fatalf("shard %s serves %d writes of %d", e.name, e.objects, w.written)
			}
		}
	}
	if served > 1 {
		w.Fatal("both shards serve the cluster")
	}
	if served == 1 {
		return
	}
	for _, e := range []*etcd{w.a, w.b} {
		if e.lc != nil && clusters.IsComing(e.lc) && e.lc.Annotations[clusters.CompleteAnnotation] != "" && e.objects == w.written {
			return
		}
	}
	w.Fatal("no shard has the cluster")
}

// I16: whatever happens in between, one shard has the cluster, with all that was written; and once nobody moves it, it
// is served, and nothing is left of it on the other shard.
func TestOneShardHasAClusterWhateverHappensI16(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		actions := map[string]func(){
			"begin": w.begin, "step": w.step, "step again": w.step, "write": w.write, "undo": w.undo, "die": func() { w.next = 0 }, "cancel": w.cancel,
			"a's leader": func() { w.lead(w.a) }, "b's leader": func() { w.lead(w.b) }, "a's freeze ends": w.a.expire, "b's freeze ends": w.b.expire,
			"the network": func() { w.network.down = !w.network.down },
		}
		names := []string{"begin", "begin", "step", "step again", "step", "write", "undo", "die", "cancel", "a's leader", "b's leader", "a's freeze ends", "b's freeze ends", "the network"}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 60).Draw(t, "what happens") {
			actions[name]()
			w.check()
		}
		w.next, w.network.down = 0, false
		for range 6 {
			for _, e := range []*etcd{w.a, w.b} {
				e.expire()
				w.lead(e)
				w.check()
			}
		}
		if !w.a.mayWrite() && !w.b.mayWrite() || w.a.lc != nil && w.b.lc != nil {
			w.Fatalf("nobody moves the cluster, and a has %v, b has %v", w.a.lc, w.b.lc)
		}
	})
}
