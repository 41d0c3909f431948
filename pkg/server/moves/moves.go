// Package moves takes the steps by which a logical cluster moves from one shard to another: see clusters.Move. Whoever
// moves it asks each shard for its own steps, and carries the objects. If they die, the leader of each shard ends what
// is there: before the switch the cluster stays where it was, and after it the cluster is at its destination.
package moves

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Store is what a shard's etcd does of a move: see storage.Client.
type Store interface {
	Leave(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, revision int64, why string) (storage.Freeze, error)
	Stay(ctx context.Context, f storage.Freeze, lc storage.Stored) error
	Depart(ctx context.Context, f storage.Freeze, lc storage.Stored, to clusters.Move) error
	Remain(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, revision int64) error
	Concede(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, revision int64, to clusters.Move) error
	Return(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, revision int64, from clusters.Move) error
	Vacate(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, revision int64) error

	Come(ctx context.Context, cluster logicalcluster.Name, lc storage.Stored, why string) (storage.Freeze, error)
	Complete(ctx context.Context, f storage.Freeze, lc storage.Stored, revision int64) error
	Arrive(ctx context.Context, f storage.Freeze, lc storage.Stored, revision int64) error
	Reclaim(ctx context.Context, cluster logicalcluster.Name, revision int64) (storage.Freeze, error)
	Interrupt(ctx context.Context, cluster logicalcluster.Name, revision int64) error
	Discard(ctx context.Context, cluster logicalcluster.Name, revision int64, by *storage.Freeze) error

	Count(ctx context.Context, cluster logicalcluster.Name) (int64, error)
}

// Moves takes the steps of one shard. All methods may be called at any time on any goroutine.
type Moves struct {
	// Shard is the name of the shard.
	Shard    string
	Store    Store
	Live     routing.Live
	Bindings Bindings
	// Others reads the other shards. Nil: there are none. NowhereElse returns an error unless each of them says
	// that it does not have a logical cluster.
	Others      controllers.ShardReader
	NowhereElse func(context.Context, logicalcluster.Name) error
	// BaseURL begins the URLs of logical clusters. Seen returns a revision that etcd has had, and RootCA has the
	// authorities by which clients know the API: what a logical cluster has built in is made by them.
	BaseURL string
	Seen    func() int64
	RootCA  string
}

// ErrCannotMove is of a logical cluster that cannot move now, or not at all.
var ErrCannotMove = errors.New("it cannot move")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCannotMove, fmt.Sprintf(format, args...))
}

// ErrUndecided is of a move of which it cannot be said yet what becomes of it: ask again.
var ErrUndecided = errors.New("the other shard has not decided yet where the logical cluster is")

// ErrIncomplete is of a logical cluster that has departed for this shard, which has not all that it had: the shard was
// restored from a backup.
var ErrIncomplete = errors.New("the logical cluster was moved here, and this shard has not all of it, because it was restored from a backup of before: the other shard has it still, and keeps it: regent shard reconcile has it taken back")

// read returns a LogicalCluster as it is stored, and its revision.
func (m *Moves) read(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, int64, error) {
	lc, err := m.Live.LogicalCluster(ctx, cluster)
	if err != nil {
		return nil, 0, err
	}
	revision, err := revisionOf(lc)
	return lc, revision, err
}

func revisionOf(lc *corev1alpha1.LogicalCluster) (int64, error) {
	revision, err := strconv.ParseInt(lc.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the revision of logical cluster %s: %w", logicalcluster.From(lc), err)
	}
	return revision, nil
}

// Encode returns a LogicalCluster as storage takes it.
func Encode(lc *corev1alpha1.LogicalCluster) (storage.Stored, error) {
	out := lc.DeepCopy()
	out.APIVersion, out.Kind = corev1alpha1.SchemeGroupVersion.String(), "LogicalCluster"
	out.ResourceVersion = ""
	text, err := json.Marshal(out)
	if err != nil {
		return storage.Stored{}, fmt.Errorf("encode LogicalCluster %s: %w", logicalcluster.From(lc), err)
	}
	return storage.Stored{Key: bundle.LogicalClusterKey, JSON: text}, nil
}

// annotated returns a LogicalCluster with an annotation, and without others.
func annotated(lc *corev1alpha1.LogicalCluster, key, value string, without ...string) *corev1alpha1.LogicalCluster {
	out := lc.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	for _, one := range without {
		delete(out.Annotations, one)
	}
	if key != "" {
		out.Annotations[key] = value
	}
	return out
}

// conflict is what a controller is told that is to ask again later.
func conflict(lc *corev1alpha1.LogicalCluster, err error) error {
	return apierrors.NewConflict(corev1alpha1.Resource("logicalclusters"), logicalcluster.From(lc).String(), err)
}

// isPassing reports whether an error of storage says that somebody else is at it.
func isPassing(err error) bool {
	return errors.Is(err, storage.ErrFrozen) || errors.Is(err, storage.ErrThawed) || errors.Is(err, storage.ErrDecided) ||
		errors.Is(err, storage.ErrNoCluster) || errors.Is(err, ErrUndecided)
}
