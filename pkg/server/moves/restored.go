package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

// When a shard's etcd is restored from a backup of before a move, both shards may have the logical cluster, or neither.
// Only an administrator knows that an etcd was restored, so an administrator says what becomes of each: Concede and
// Return do it if the other shard says the same.

// conceded is the id of a move of which the other shard does not say which it was.
const conceded = "conceded"

// Concede makes a logical cluster one of another shard, to which it had moved before the etcd of this shard was
// restored. What was written here since is lost. Nothing undoes it.
func (m *Moves) Concede(ctx context.Context, cluster logicalcluster.Name, to string) error {
	lc, revision, err := m.read(ctx, cluster)
	switch {
	case err != nil:
		return err
	case m.Others == nil || to == m.Shard:
		return refuse("logical cluster %s must be on another shard of the installation, and not on %q", cluster, to)
	case clusters.MovedTo(lc).Shard == to: // an answer was lost
		return nil
	case clusters.IsPermanent(cluster):
		return refuse("logical cluster %s is of its shard", cluster)
	case clusters.IsMoving(lc):
		return refuse("logical cluster %s comes, leaves, or has moved to another shard: try again in some seconds", cluster)
	}
	there, err := m.Others.LogicalCluster(ctx, to, cluster)
	if apierrors.IsNotFound(err) {
		return refuse("shard %s must say that it has logical cluster %s: %v", to, cluster, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	move := clusters.Move{Shard: to, ID: conceded}
	switch from := clusters.ComingFrom(there); {
	case there.UID != lc.UID || clusters.IsComing(there):
		return refuse("shard %s has another logical cluster %s, or does not have it yet", to, cluster)
	case !slices.Contains(clusters.OriginsOf(there), m.Shard) || clusters.EpochOf(there) <= clusters.EpochOf(lc):
		return refuse("logical cluster %s of shard %s is not later than that of this shard, from which it must have come", cluster, to)
	case from.Shard == m.Shard:
		move.ID = from.ID
	}
	out := annotated(lc, clusters.MovedAnnotation, move.String())
	out.Annotations[clusters.LeftAnnotation] = time.Now().UTC().Format(time.RFC3339)
	encoded, err := Encode(out)
	if err != nil {
		return err
	}
	return m.Store.Concede(ctx, cluster, encoded, revision, move)
}

// Return takes back a logical cluster that has moved to another shard, which has lost it since, because its etcd was
// restored. What was written there since is lost. No other shard may have it.
func (m *Moves) Return(ctx context.Context, cluster logicalcluster.Name) error {
	lc, revision, err := m.read(ctx, cluster)
	if err != nil {
		return err
	}
	to := clusters.MovedTo(lc)
	switch {
	case to == (clusters.Move{}):
		return refuse("logical cluster %s has not moved away from this shard", cluster)
	case m.Others == nil:
		return refuse("there is no shard %s any more", to.Shard)
	case lc.Annotations[clusters.VacatedAnnotation] != "":
		return refuse("objects of logical cluster %s have been removed here: import it from a backup of this shard (docs/BACKUP.md)", cluster)
	}
	if err := m.isLost(ctx, lc, to); err != nil {
		return err
	}
	out := annotated(lc, clusters.EpochAnnotation, strconv.FormatInt(laterEpoch(lc), 10), clusters.MovedAnnotation, clusters.LeftAnnotation, clusters.ResumeAnnotation)
	clusters.AddOrigin(out, to.Shard)
	encoded, err := Encode(out)
	if err != nil {
		return err
	}
	return m.Store.Return(ctx, cluster, encoded, revision, to)
}

// isLost returns an error unless the shard to which a logical cluster has moved says that it has nothing of it, and no
// other one has it.
func (m *Moves) isLost(ctx context.Context, lc *corev1alpha1.LogicalCluster, to clusters.Move) error {
	cluster := logicalcluster.From(lc)
	there, err := m.Others.LogicalCluster(ctx, to.Shard, cluster)
	moved, ok := errors.AsType[*clusters.MovedError](err)
	if ok && moved.To == (clusters.Move{Shard: m.Shard, ID: clusters.ComingFrom(lc).ID}) {
		return nil // by the move before: that shard does not know that it has come back
	}
	if ok {
		return refuse("logical cluster %s has moved on, from shard %s to %s", cluster, to.Shard, moved.To.Shard)
	}
	switch {
	case err == nil && clusters.IsComing(there):
		return fmt.Errorf("%w: logical cluster %s comes to shard %s, whose leader ends that", ErrUndecided, cluster, to.Shard)
	case err == nil:
		return refuse("shard %s has logical cluster %s", to.Shard, cluster)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if err := m.NowhereElse(ctx, cluster); err != nil {
		return refuse("logical cluster %s must be on no other shard: %v", cluster, err)
	}
	return nil
}

// laterEpoch returns an epoch that is later than that which a logical cluster had on the shard to which it had moved.
func laterEpoch(lc *corev1alpha1.LogicalCluster) int64 {
	now := time.Now()
	there := annotated(lc, clusters.EpochAnnotation, strconv.FormatInt(clusters.NextEpoch(lc, now), 10))
	return clusters.NextEpoch(there, now)
}

var _ Store = (*storage.Client)(nil)
