package admission

import (
	"context"
	"fmt"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/premise"
)

// ClusterOwner lets the leader create a LogicalCluster only while there is the Workspace of this shard that it is for:
// the transaction of the creation compares the Workspace. The cluster of one that has gone would be nobody's. The error
// is Conflict.
type ClusterOwner struct {
	// Cached returns a Workspace from memory, and Stored from storage.
	Cached func(clusters.Key) (*tenancyv1alpha1.Workspace, bool)
	Stored func(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
}

// Handles implements admission.Interface.
func (o *ClusterOwner) Handles(op admission.Operation) bool { return op == admission.Create }

// Validate implements admission.ValidationInterface.
func (o *ClusterOwner) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	lc, ok := a.GetObject().(*corev1alpha1.LogicalCluster)
	if !ok || a.GetSubresource() != "" || lc.Spec.Owner == nil || lc.Spec.Owner.Resource != "workspaces" || lc.Labels[clusters.OwnerShardLabel] != "" {
		return nil
	}
	owner := clusters.Key{Cluster: logicalcluster.Name(lc.Spec.Owner.Cluster), Name: lc.Spec.Owner.Name}
	stored := func(ctx context.Context) (int64, error) {
		ws, err := o.Stored(ctx, owner.Cluster, owner.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, apierrors.NewInternalError(fmt.Errorf("cannot read the owner of the logical cluster, workspace %s: %w", owner, err))
		}
		return owning(ws, err == nil, lc)
	}
	ws, ok := o.Cached(owner)
	revision, err := owning(ws, ok, lc)
	if err != nil || premise.From(ctx) == nil { // memory may be late
		if revision, err = stored(ctx); err != nil {
			return err
		}
	}
	premise.Set(ctx, premise.Condition{Resource: tenancyv1alpha1.Resource("workspaces"), Cluster: owner.Cluster, Name: owner.Name, Revision: revision}, stored)
	return nil
}

// owning returns the revision of a Workspace, if there is one and it may get a LogicalCluster.
func owning(ws *tenancyv1alpha1.Workspace, ok bool, lc *corev1alpha1.LogicalCluster) (revision int64, err error) {
	if !ok || ws.UID != lc.Spec.Owner.UID || ws.DeletionTimestamp != nil {
		return 0, apierrors.NewConflict(corev1alpha1.Resource("logicalclusters"), lc.Name, fmt.Errorf("workspace %s, which is to own it, has gone, or is being deleted", lc.Spec.Owner.Name))
	}
	if revision, err = strconv.ParseInt(ws.ResourceVersion, 10, 64); err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("workspace %s: %w", ws.Name, err))
	}
	return revision, nil
}

var _ admission.ValidationInterface = (*ClusterOwner)(nil)
