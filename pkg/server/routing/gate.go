package routing

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/premise"
)

// Gate admits writes according to the state of their logical cluster. Until the cluster is Ready, only members of
// system:masters may write. While it is being deleted, nobody may create, unless the cluster is permanent; but what is
// there may be changed, as in a namespace: the deletion waits for those who remove their finalizers. Gate does not
// judge the creation of the LogicalCluster itself.
//
// A creation commits only while the LogicalCluster is as it was when Gate admitted it: the transaction compares its
// revision. Otherwise an object could be created after the deletion has counted what is left, and would survive its
// cluster. So Gate may decide by its cache, and it decides again by what is stored if that turns out to be another
// state. Gate is an admission plugin and not a handler, because only admission knows whether an apply or a put creates.
type Gate struct {
	Directory *Directory
}

// Handles implements admission.Interface.
func (g *Gate) Handles(operation admission.Operation) bool { return operation != admission.Connect }

// Validate implements admission.ValidationInterface.
func (g *Gate) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return admission.NewForbidden(a, clusters.ErrNoCluster)
	}
	creates := a.GetOperation() == admission.Create && a.GetSubresource() == ""
	if clusters.IsSystem(cluster) || storedNowhere(a) || creates && a.GetResource().GroupResource() == corev1alpha1.Resource("logicalclusters") {
		return nil
	}
	if creates {
		return g.validateCreate(ctx, cluster, a)
	}
	if privileged(a) {
		return nil
	}
	lc, err := g.Directory.LogicalCluster(ctx, cluster)
	if err != nil {
		return readError(cluster.Path(), err)
	}
	if wasReady(lc) && !clusters.IsPermanent(cluster) {
		return nil
	}
	return g.checkReady(lc, cluster, a)
}

// wasReady reports whether a cluster is being deleted that was Ready before.
func wasReady(lc *corev1alpha1.LogicalCluster) bool {
	phase := lc.Status.Phase
	return !lc.DeletionTimestamp.IsZero() && len(lc.Status.Initializers) == 0 &&
		(phase == corev1alpha1.LogicalClusterPhaseReady || phase == corev1alpha1.LogicalClusterPhaseDeleting)
}

// storedNowhere reports whether what is created is a question that is only answered. It may be asked in any state of a
// cluster.
func storedNowhere(a admission.Attributes) bool {
	return slices.Contains([]string{authenticationv1.GroupName, authorizationv1.GroupName}, a.GetResource().Group)
}

func (g *Gate) validateCreate(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) error {
	lc, ok := g.Directory.cached(cluster)
	revision, unknown := revisionOf(lc)
	if !ok || unknown != nil || premise.From(ctx) == nil || g.judge(lc, cluster, a) != nil {
		var err error
		if revision, err = g.judgeStored(ctx, cluster, a); err != nil {
			return err
		}
	}
	if !clusters.IsPermanent(cluster) { // those are never emptied
		premise.Set(ctx, premise.Condition{
			Resource: corev1alpha1.Resource("logicalclusters"), Cluster: cluster, Name: corev1alpha1.LogicalClusterName, Revision: revision,
		}, func(ctx context.Context) (int64, error) { return g.judgeStored(ctx, cluster, a) })
	}
	return nil
}

// judgeStored judges a creation by what is stored, and returns the revision of that.
func (g *Gate) judgeStored(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) (revision int64, err error) {
	lc, err := g.Directory.Live.LogicalCluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return 0, admission.NewForbidden(a, fmt.Errorf("logical cluster %q does not exist (any more)", cluster))
	}
	if err != nil {
		return 0, readError(cluster.Path(), err)
	}
	if err := g.judge(lc, cluster, a); err != nil {
		return 0, err
	}
	if revision, err = revisionOf(lc); err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("logical cluster %q: %w", cluster, err))
	}
	return revision, nil
}

// revisionOf returns the revision of etcd at which a LogicalCluster was stored.
func revisionOf(lc *corev1alpha1.LogicalCluster) (int64, error) {
	if lc == nil {
		return 0, nil
	}
	return strconv.ParseInt(lc.ResourceVersion, 10, 64)
}

// judge returns why a creation is refused.
func (g *Gate) judge(lc *corev1alpha1.LogicalCluster, cluster logicalcluster.Name, a admission.Attributes) error {
	if !lc.DeletionTimestamp.IsZero() && !clusters.IsPermanent(cluster) {
		return admission.NewForbidden(a, fmt.Errorf("logical cluster %q is being deleted: nothing can be created in it", cluster))
	}
	return g.checkReady(lc, cluster, a)
}

func (g *Gate) checkReady(lc *corev1alpha1.LogicalCluster, cluster logicalcluster.Name, a admission.Attributes) error {
	if lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady || privileged(a) {
		return nil
	}
	if cluster == clusters.Root {
		return errBootstrapping()
	}
	return admission.NewForbidden(a, fmt.Errorf("logical cluster %q is not Ready yet: its phase is %q", cluster, lc.Status.Phase))
}

func privileged(a admission.Attributes) bool {
	return a.GetUserInfo() != nil && slices.Contains(a.GetUserInfo().GetGroups(), user.SystemPrivilegedGroup)
}

var _ admission.ValidationInterface = (*Gate)(nil)
