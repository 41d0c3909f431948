package moves

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Begin begins with a logical cluster that comes from another shard, and is there. lc is as that has it, and owner is
// the shard that has its Workspace.
func (m *Moves) Begin(ctx context.Context, lc *corev1alpha1.LogicalCluster, owner string, from clusters.Move, who string) (storage.Freeze, error) {
	cluster := logicalcluster.From(lc)
	if m.Others == nil || from.Shard == m.Shard {
		return storage.Freeze{}, refuse("it must come from another shard of the installation, and not from %q", from.Shard)
	}
	if err := m.checkComing(lc); err != nil {
		return storage.Freeze{}, err
	}
	if err := m.isFree(ctx, cluster); err != nil {
		return storage.Freeze{}, err
	}
	there, err := m.Others.LogicalCluster(ctx, from.Shard, cluster)
	if err != nil {
		return storage.Freeze{}, refuse("shard %s must say that it has logical cluster %s: %v", from.Shard, cluster, err)
	}
	if there.UID != lc.UID || clusters.IsComing(there) {
		return storage.Freeze{}, refuse("shard %s has another logical cluster %s, or does not have it yet", from.Shard, cluster)
	}
	epoch := strconv.FormatInt(clusters.NextEpoch(lc, time.Now()), 10)
	coming, err := m.coming(lc, owner, from, epoch, storage.Resume{})
	if err != nil {
		return storage.Freeze{}, err
	}
	encoded, err := Encode(coming)
	if err != nil {
		return storage.Freeze{}, err
	}
	return m.Store.Come(ctx, cluster, encoded, fmt.Sprintf("user %q moves it from shard %s", who, from.Shard))
}

// checkComing returns an error for what no shard has as the LogicalCluster of a Workspace.
func (m *Moves) checkComing(lc *corev1alpha1.LogicalCluster) error {
	cluster := logicalcluster.From(lc)
	if lc.Name != corev1alpha1.LogicalClusterName || lc.UID == "" || !clusters.IsValidName(cluster) || clusters.IsSystem(cluster) {
		return refuse("%q is the LogicalCluster of no workspace", cluster)
	}
	if _, err := clusters.CreatorBindingOf(lc); err != nil {
		return refuse("whom it was made for cannot be read: %v", err)
	}
	out := lc.DeepCopy()
	delete(out.Annotations, clusters.LeavingAnnotation)
	return mayMove(out)
}

// isFree returns an error if the shard has something of a logical cluster.
func (m *Moves) isFree(ctx context.Context, cluster logicalcluster.Name) error {
	switch lc, err := m.Live.LogicalCluster(ctx, cluster); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case clusters.IsComing(lc):
		return refuse("logical cluster %s comes already, or is being removed because it did not: try again in some seconds", cluster)
	case clusters.HasMoved(lc):
		return refuse("this shard still removes what logical cluster %s had here: try again in some seconds", cluster)
	}
	return refuse("logical cluster %s is there already", cluster)
}

// coming returns the LogicalCluster of one that comes, as this shard has it. It has no path yet.
func (m *Moves) coming(lc *corev1alpha1.LogicalCluster, owner string, from clusters.Move, epoch string, resume storage.Resume) (*corev1alpha1.LogicalCluster, error) {
	resume.Epoch = clusters.EpochOf(lc)
	text, err := json.Marshal(resume)
	if err != nil {
		return nil, fmt.Errorf("encode how watches go on: %w", err)
	}
	out := annotated(lc, clusters.ComingAnnotation, time.Now().UTC().Format(time.RFC3339), clusters.LeavingAnnotation, clusters.LeftAnnotation, clusters.CompleteAnnotation)
	out.Annotations[clusters.ComingFromAnnotation] = from.String()
	out.Annotations[clusters.EpochAnnotation], out.Annotations[clusters.ResumeAnnotation] = epoch, string(text)
	clusters.AddOrigin(out, from.Shard)
	delete(out.Labels, clusters.OwnerShardLabel)
	if owner != m.Shard {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[clusters.OwnerShardLabel] = owner
	}
	if clusters.HasBuiltIn(lc) {
		out.Annotations[clusters.BuiltInAnnotation] = clusters.BuiltInValue(m.Seen(), m.RootCA)
	}
	conditions.Delete(out, clusters.ConditionOrphaned)
	out.Status.URL = m.BaseURL + clusters.RequestPath(logicalcluster.From(lc))
	if !slices.Contains(out.Finalizers, clusters.ContentFinalizer) {
		out.Finalizers = append(out.Finalizers, clusters.ContentFinalizer)
	}
	hidePath(out)
	return out, nil
}

func hidePath(lc *corev1alpha1.LogicalCluster) {
	lc.Annotations[clusters.HiddenPathAnnotation] = lc.Annotations[core.LogicalClusterPathAnnotationKey]
	delete(lc.Annotations, core.LogicalClusterPathAnnotationKey)
}

// Complete says that all of a logical cluster is here that was there when it left: so many objects, and its
// LogicalCluster as it was then. resume says what has changed there last.
func (m *Moves) Complete(ctx context.Context, f storage.Freeze, left *corev1alpha1.LogicalCluster, objects int64, resume storage.Resume) error {
	is, revision, err := m.comes(ctx, f.Cluster)
	if err != nil {
		return err
	}
	if err := m.checkComing(left); err != nil || left.UID != is.UID {
		return errors.Join(err, refuse("it is not the logical cluster %s that has begun to come", f.Cluster))
	}
	n, err := m.Store.Count(ctx, f.Cluster)
	if err != nil {
		return err
	}
	if n != objects {
		return refuse("%d objects have come, and the other shard has %d", n, objects)
	}
	if err := m.hasSchemas(ctx, f.Cluster); err != nil {
		return err
	}
	owner := clusters.ShardOf(is, clusters.OwnerShardLabel, m.Shard)
	next, err := m.coming(left, owner, clusters.ComingFrom(is), is.Annotations[clusters.EpochAnnotation], resume)
	if err != nil {
		return err
	}
	next.Annotations[clusters.CompleteAnnotation] = strconv.FormatInt(objects, 10)
	encoded, err := Encode(next)
	if err != nil {
		return err
	}
	return m.Store.Complete(ctx, f, encoded, revision)
}

// comes returns the LogicalCluster of one that comes from another shard, and its revision.
func (m *Moves) comes(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, int64, error) {
	lc, revision, err := m.read(ctx, cluster)
	if err != nil {
		return nil, 0, err
	}
	if !clusters.IsComing(lc) || clusters.ComingFrom(lc) == (clusters.Move{}) {
		return nil, 0, fmt.Errorf("%w: logical cluster %s does not come", storage.ErrThawed, cluster)
	}
	return lc, revision, nil
}

// Arrive makes a logical cluster that comes one that is there, if the other shard says that it has departed. The error
// wraps ErrUndecided if that does not say so.
func (m *Moves) Arrive(ctx context.Context, f storage.Freeze, by clusters.Move) error {
	lc, revision, err := m.read(ctx, f.Cluster)
	switch {
	case err != nil:
		return err
	case !clusters.IsComing(lc) && clusters.ComingFrom(lc) == by: // an answer was lost
		return nil
	case !clusters.IsComing(lc):
		return fmt.Errorf("%w: logical cluster %s does not come", storage.ErrThawed, f.Cluster)
	}
	departed, err := m.hasDeparted(ctx, lc)
	if err != nil {
		return err
	}
	if !departed {
		return ErrUndecided
	}
	return m.arrive(ctx, f, lc, revision)
}

func (m *Moves) arrive(ctx context.Context, f storage.Freeze, lc *corev1alpha1.LogicalCluster, revision int64) error {
	if lc.Annotations[clusters.CompleteAnnotation] == "" {
		return fmt.Errorf("logical cluster %s: %w", f.Cluster, ErrIncomplete)
	}
	// ComingFromAnnotation stays: it tells of which move this was.
	out := annotated(lc, core.LogicalClusterPathAnnotationKey, lc.Annotations[clusters.HiddenPathAnnotation], clusters.ComingAnnotation, clusters.CompleteAnnotation, clusters.HiddenPathAnnotation)
	resume := storage.ResumeOf(lc)
	resume.Start = revision // all that has come was written before, and nobody writes until it is there
	text, err := json.Marshal(resume)
	if err != nil {
		return fmt.Errorf("encode how watches go on: %w", err)
	}
	out.Annotations[clusters.ResumeAnnotation] = string(text)
	encoded, err := Encode(out)
	if err != nil {
		return err
	}
	return m.Store.Arrive(ctx, f, encoded, revision)
}

// Cancel removes what has come under a freeze.
func (m *Moves) Cancel(ctx context.Context, f storage.Freeze) error {
	lc, revision, err := m.comes(ctx, f.Cluster)
	if err != nil {
		return err
	}
	if departed, err := m.hasDeparted(ctx, lc); err != nil || departed {
		return cmp.Or(err, fmt.Errorf("%w: logical cluster %s has moved here by now", storage.ErrThawed, f.Cluster))
	}
	return m.Store.Discard(ctx, f.Cluster, revision, &f)
}

// Interrupt has whoever has begun with a logical cluster that comes go on no more. The leader ends what is there: the
// cluster stays where it was, unless it has departed by then.
func (m *Moves) Interrupt(ctx context.Context, cluster logicalcluster.Name) error {
	for {
		lc, revision, err := m.comes(ctx, cluster)
		if err != nil {
			return err
		}
		if departed, err := m.hasDeparted(ctx, lc); err == nil && departed {
			return refuse("logical cluster %s has moved here by now: move it back", cluster)
		}
		if err := m.Store.Interrupt(ctx, cluster, revision); !errors.Is(err, storage.ErrDecided) {
			return err
		}
	}
}

// Comes returns an error unless a logical cluster comes from another shard.
func (m *Moves) Comes(ctx context.Context, cluster logicalcluster.Name) error {
	_, _, err := m.comes(ctx, cluster)
	return err
}

// Localize returns objects of a logical cluster that comes as this shard stores them: each with the version that the
// other shard shows, of a Workspace on which shard its own logical cluster is, and of an APIBinding on which its export
// is.
func (m *Moves) Localize(ctx context.Context, cluster logicalcluster.Name, objects []storage.Stored) error {
	if len(objects) == 0 {
		return nil
	}
	lc, _, err := m.comes(ctx, cluster)
	if err != nil {
		return err
	}
	there, here := storage.ResumeOf(lc).Epoch, clusters.EpochOf(lc)
	for n := range objects {
		o := &objects[n]
		switch {
		case strings.HasPrefix(o.Key, bundle.WorkspaceKeys):
			o.JSON, err = m.relabel(lc, o.JSON)
		case strings.HasPrefix(o.Key, bundle.BindingKeys):
			o.JSON, err = m.rebind(lc, o.JSON)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
		if o.JSON, err = storage.WithVersion(o.JSON, o.Revision, there, here); err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
	}
	return nil
}

// relabel returns a Workspace with the shard that has its logical cluster, as seen from this one.
func (m *Moves) relabel(lc *corev1alpha1.LogicalCluster, text []byte) ([]byte, error) {
	ws := &tenancyv1alpha1.Workspace{}
	if err := json.Unmarshal(text, ws); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrUnstorable, err)
	}
	at := clusters.HomeOf(ws, clusters.ComingFrom(lc).Shard)
	delete(ws.Labels, clusters.ShardLabel)
	if at != "" && at != m.Shard {
		metav1.SetMetaDataLabel(&ws.ObjectMeta, clusters.ShardLabel, at)
	}
	return json.Marshal(ws)
}

// hasDeparted reports whether the other shard says that a logical cluster that comes has departed by that very move.
// The error wraps ErrUndecided while it may still do so, or does not answer.
func (m *Moves) hasDeparted(ctx context.Context, lc *corev1alpha1.LogicalCluster) (bool, error) {
	by, cluster := clusters.ComingFrom(lc), logicalcluster.From(lc)
	if m.Others == nil {
		return false, ErrUndecided
	}
	there, err := m.Others.LogicalCluster(ctx, by.Shard, cluster)
	if moved, ok := errors.AsType[*clusters.MovedError](err); ok {
		return moved.To == clusters.Move{Shard: m.Shard, ID: by.ID}, nil
	}
	switch {
	// It was deleted there, or has moved and was removed: it did not depart by this move, unless this shard was
	// restored since.
	case apierrors.IsNotFound(err) && lc.Annotations[clusters.CompleteAnnotation] != "":
		return m.isNamed(ctx, lc)
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrUndecided, err)
	case clusters.Leaving(there).ID == by.ID:
		return false, ErrUndecided
	}
	return false, nil
}

// isNamed reports whether the Workspace of a logical cluster that comes, and that its former shard does not have, says
// that it is on this shard. The error wraps ErrUndecided unless there is no such Workspace, or the shard has the
// cluster that it names: what has come may be all that there is.
func (m *Moves) isNamed(ctx context.Context, lc *corev1alpha1.LogicalCluster) (bool, error) {
	owner := lc.Spec.Owner
	if owner == nil {
		return false, nil
	}
	at, of := clusters.ShardOf(lc, clusters.OwnerShardLabel, m.Shard), clusters.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}
	read := func() (*tenancyv1alpha1.Workspace, error) { return m.Others.Workspace(ctx, at, of) }
	if at == m.Shard {
		read = func() (*tenancyv1alpha1.Workspace, error) { return m.Live.Workspace(ctx, of.Cluster, of.Name) }
	}
	ws, err := read()
	switch {
	case apierrors.IsNotFound(err):
		if _, err = m.readAt(ctx, at, of.Cluster); err == nil { // its cluster has not left that shard
			return false, nil
		}
	case err == nil && ws.UID != owner.UID:
		return false, nil
	case err == nil && clusters.ShardOf(ws, clusters.ShardLabel, at) == m.Shard:
		return true, nil
	case err == nil:
		var there *corev1alpha1.LogicalCluster
		there, err = m.readAt(ctx, clusters.ShardOf(ws, clusters.ShardLabel, at), logicalcluster.From(lc))
		if err == nil && there.UID == lc.UID && !clusters.IsComing(there) {
			return false, nil
		}
	}
	return false, fmt.Errorf("%w: nobody else has logical cluster %s: %w", ErrUndecided, logicalcluster.From(lc), cmp.Or(err, ErrCannotMove))
}

// readAt reads a LogicalCluster of a shard, which may be this one.
func (m *Moves) readAt(ctx context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if shard == m.Shard {
		return m.Live.LogicalCluster(ctx, cluster)
	}
	return m.Others.LogicalCluster(ctx, shard, cluster)
}

// End implements controllers.Moves.
func (m *Moves) End(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	err := m.end(ctx, lc)
	if isPassing(err) {
		return conflict(lc, err)
	}
	return err
}

// end takes a logical cluster that comes to its end, if whoever has begun it has died. It freezes the cluster first:
// from then on whoever has begun writes nothing more here, so it does not depart after the other shard was asked.
func (m *Moves) end(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	cluster, log := logicalcluster.From(lc), klog.FromContext(ctx)
	revision, err := revisionOf(lc)
	if err != nil {
		return err
	}
	f, err := m.Store.Reclaim(ctx, cluster, revision)
	if err != nil {
		return err
	}
	// One that is not complete departs no more, or this shard was restored since, and the other one can take it
	// back.
	if from := clusters.ComingFrom(lc); from != (clusters.Move{}) && lc.Annotations[clusters.CompleteAnnotation] != "" {
		departed, err := m.hasDeparted(ctx, lc)
		if err != nil {
			return err
		}
		if departed {
			if err := m.arrive(ctx, f, lc, revision); err != nil {
				return err
			}
			log.Info("A logical cluster has moved here, though whoever moved it did not end it", "cluster", cluster, "from", from.Shard)
			return nil
		}
	}
	if err := m.Store.Discard(ctx, cluster, revision, &f); err != nil {
		return err
	}
	log.Info("Removed a logical cluster that has not come as a whole: take it in, or move it, again", "cluster", cluster)
	return nil
}
