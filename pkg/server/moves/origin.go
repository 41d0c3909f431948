package moves

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Departure is a logical cluster that may move: nobody writes in it any more.
type Departure struct {
	storage.Freeze
	LogicalCluster *corev1alpha1.LogicalCluster
	// Objects is how many objects it has, without Events.
	Objects int64
}

// Leave freezes a logical cluster that may move to another shard.
func (m *Moves) Leave(ctx context.Context, cluster logicalcluster.Name, to clusters.Move, who string) (*Departure, error) {
	for {
		lc, revision, err := m.read(ctx, cluster)
		if err != nil {
			return nil, err
		}
		if err := mayMove(lc); err != nil {
			return nil, err
		}
		lc = annotated(lc, clusters.LeavingAnnotation, to.String())
		lc.Annotations[clusters.LeftAnnotation] = time.Now().UTC().Format(time.RFC3339)
		encoded, err := Encode(lc)
		if err != nil {
			return nil, err
		}
		f, err := m.Store.Leave(ctx, cluster, encoded, revision, fmt.Sprintf("user %q moves it to shard %s", who, to.Shard))
		if errors.Is(err, storage.ErrDecided) {
			continue
		}
		if err != nil {
			return nil, err
		}
		n, err := m.Store.Count(ctx, cluster)
		return &Departure{f, lc, n}, err
	}
}

// mayMove returns an error for a logical cluster that cannot move now.
func mayMove(lc *corev1alpha1.LogicalCluster) error {
	cluster := logicalcluster.From(lc)
	switch {
	case clusters.HasMoved(lc):
		return &clusters.MovedError{Cluster: cluster, To: clusters.MovedTo(lc)}
	case clusters.IsPermanent(cluster):
		return refuse("logical cluster %s is of its shard, and cannot move", cluster)
	case clusters.IsComing(lc), clusters.Leaving(lc) != clusters.Move{}:
		return refuse("logical cluster %s comes or moves already: try again in some seconds", cluster)
	case lc.DeletionTimestamp != nil:
		return refuse("logical cluster %s is being deleted", cluster)
	case lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || lc.Spec.Owner == nil:
		return refuse("logical cluster %s is not Ready, but %q, or of no Workspace: it moves once its Workspace is Ready", cluster, lc.Status.Phase)
	}
	return nil
}

// Stay ends what Leave has begun, if the logical cluster has not moved.
func (m *Moves) Stay(ctx context.Context, f storage.Freeze) error {
	encoded, _, err := m.leaving(ctx, f)
	if err != nil {
		return err
	}
	return m.Store.Stay(ctx, f, encoded)
}

// Depart makes a logical cluster one of the other shard, where all of it must be. Nothing undoes it.
func (m *Moves) Depart(ctx context.Context, f storage.Freeze, to clusters.Move) error {
	_, lc, err := m.leaving(ctx, f)
	if err != nil {
		return err
	}
	switch clusters.MovedTo(lc) {
	case to: // an answer was lost
		return nil
	case clusters.Move{}:
	default:
		return storage.ErrThawed
	}
	if clusters.Leaving(lc) != to {
		return storage.ErrThawed
	}
	encoded, err := Encode(annotated(lc, clusters.MovedAnnotation, to.String(), clusters.LeavingAnnotation))
	if err != nil {
		return err
	}
	return m.Store.Depart(ctx, f, encoded, to)
}

// leaving returns a LogicalCluster that leaves, and how it is written to stay.
func (m *Moves) leaving(ctx context.Context, f storage.Freeze) (stays storage.Stored, lc *corev1alpha1.LogicalCluster, err error) {
	lc, _, err = m.read(ctx, f.Cluster)
	if err != nil {
		return stays, nil, err
	}
	stays, err = Encode(annotated(lc, "", "", clusters.LeavingAnnotation, clusters.LeftAnnotation))
	return stays, lc, err
}

// Remain implements controllers.Moves.
func (m *Moves) Remain(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	revision, err := revisionOf(lc)
	if err != nil {
		return err
	}
	encoded, err := Encode(annotated(lc, "", "", clusters.LeavingAnnotation, clusters.LeftAnnotation))
	if err != nil {
		return err
	}
	if err = m.Store.Remain(ctx, logicalcluster.From(lc), encoded, revision); isPassing(err) {
		return conflict(lc, err)
	}
	return err
}

// Vacate implements controllers.Moves.
func (m *Moves) Vacate(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	revision, err := revisionOf(lc)
	if err != nil {
		return err
	}
	encoded, err := Encode(annotated(lc, clusters.VacatedAnnotation, time.Now().UTC().Format(time.RFC3339)))
	if err != nil {
		return err
	}
	if err := m.Store.Vacate(ctx, logicalcluster.From(lc), encoded, revision); isPassing(err) {
		return conflict(lc, err)
	} else if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Removed what a logical cluster had that has moved", "cluster", logicalcluster.From(lc), "to", clusters.MovedTo(lc).Shard)
	return nil
}
