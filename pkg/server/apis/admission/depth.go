package admission

import (
	"context"
	"fmt"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
)

// Depth refuses Workspaces that would be too far below root. Whoever has a workspace may make others in it, and each
// has a quota of its own: without a limit on both their number and their depth, a quota would bind nobody who makes
// more of them.
//
// How deep a cluster is says the path on its LogicalCluster, which is in the same shard, and which only the shard's
// leader writes.
type Depth struct {
	// Max is how many Workspaces a path may have below root: with 1, those in root can have none. 0: no limit.
	Max int
	// LogicalCluster returns the LogicalCluster of a cluster.
	LogicalCluster func(context.Context, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
}

// Handles implements admission.Interface.
func (d *Depth) Handles(op admission.Operation) bool { return op == admission.Create && d.Max > 0 }

// Validate implements admission.ValidationInterface.
func (d *Depth) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != tenancyv1alpha1.Resource("workspaces") || a.GetSubresource() != "" {
		return nil
	}
	cluster, ok := clusters.From(ctx)
	if !ok {
		return admission.NewForbidden(a, clusters.ErrNoCluster)
	}
	if cluster == clusters.Root || clusters.IsSystem(cluster) {
		return nil
	}
	lc, err := d.LogicalCluster(ctx, cluster)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot tell how deep logical cluster %s is: %w", cluster, err))
	}
	path := lc.Annotations[core.LogicalClusterPathAnnotationKey]
	if path == "" {
		return admission.NewForbidden(a, fmt.Errorf("logical cluster %q has no path, so nobody knows how deep it is: create the workspace in another one", cluster))
	}
	if depth := strings.Count(path, ":"); depth >= d.Max {
		quotaRefused.WithLabelValues(limitDepth).Inc()
		return admission.NewForbidden(a, fmt.Errorf(
			"%s is %d workspaces below root, and may have none in it: create the workspace nearer to root, or ask the operator of the shard (--max-workspace-depth=%d)", path, depth, d.Max))
	}
	return nil
}

var _ admission.ValidationInterface = (*Depth)(nil)
