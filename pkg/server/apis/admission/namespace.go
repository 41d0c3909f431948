// Package admission has the rules for writes that depend on other objects, or on who writes.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/premise"
)

// Namespaces finds namespaces, in any logical cluster.
type Namespaces interface {
	// Cached returns a namespace from memory. It may be stale, and may not have a new namespace.
	Cached(cluster logicalcluster.Name, name string) (*corev1.Namespace, bool)
	// Live reads a namespace from storage. The error is NotFound if there is none.
	Live(ctx context.Context, cluster logicalcluster.Name, name string) (*corev1.Namespace, error)
	// Leaving reports whether a logical cluster is being deleted.
	Leaving(ctx context.Context, cluster logicalcluster.Name) (bool, error)
}

// implied are the namespaces that every logical cluster has, even before their objects are created. They can be deleted
// only with their cluster.
var implied = []string{metav1.NamespaceSystem, metav1.NamespaceDefault}

// NamespaceLifecycle refuses to create objects in namespaces that do not exist or are terminating, and to delete
// namespaces that every cluster has. (Upstream's plugin with this purpose knows only one cluster.)
type NamespaceLifecycle struct {
	Namespaces Namespaces
}

// Handles implements admission.Interface.
func (l *NamespaceLifecycle) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Delete
}

// Validate implements admission.ValidationInterface.
func (l *NamespaceLifecycle) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return admission.NewForbidden(a, clusters.ErrNoCluster)
	}
	isNamespace := a.GetResource().GroupResource() == corev1.Resource("namespaces")
	switch {
	case isNamespace && a.GetOperation() == admission.Delete && slices.Contains(implied, a.GetName()):
		return l.validateDeletion(ctx, cluster, a)
	case !isNamespace && a.GetOperation() == admission.Create && a.GetNamespace() != "":
		return l.validateCreation(ctx, cluster, a)
	}
	return nil
}

func (l *NamespaceLifecycle) validateDeletion(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) error {
	leaving, err := l.Namespaces.Leaving(ctx, cluster)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot tell whether logical cluster %s is being deleted: %w", cluster, err))
	}
	if !leaving {
		return admission.NewForbidden(a, fmt.Errorf("this namespace may not be deleted"))
	}
	return nil
}

// validateCreation decides by what is in memory, if that has the namespace. The transaction compares the namespace with
// what was decided by: nothing is created in it after its deletion has begun.
func (l *NamespaceLifecycle) validateCreation(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) error {
	namespace, ok := l.Namespaces.Cached(cluster, a.GetNamespace())
	if !ok && slices.Contains(implied, a.GetNamespace()) {
		return nil
	}
	decide := l.decideByStored
	if ok {
		decide = func(context.Context, logicalcluster.Name, admission.Attributes) (int64, error) {
			return revisionOf(namespace, a)
		}
	}
	revision, err := decide(ctx, cluster, a)
	if err != nil {
		return err
	}
	premise.Set(ctx, premise.Condition{Resource: corev1.Resource("namespaces"), Cluster: cluster, Name: a.GetNamespace(), Revision: revision},
		func(ctx context.Context) (int64, error) { return l.decideByStored(ctx, cluster, a) })
	return nil
}

// decideByStored returns the revision of the namespace in storage, or an error if nothing can be created in it. 0: it
// is implied, and not stored.
func (l *NamespaceLifecycle) decideByStored(ctx context.Context, cluster logicalcluster.Name, a admission.Attributes) (revision int64, err error) {
	name := a.GetNamespace()
	namespace, err := l.Namespaces.Live(ctx, cluster, name)
	switch {
	case apierrors.IsNotFound(err) && slices.Contains(implied, name):
		return 0, nil
	case apierrors.IsNotFound(err):
		return 0, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case err != nil:
		return 0, apierrors.NewInternalError(fmt.Errorf("cannot read namespace %s: %w", name, err))
	}
	return revisionOf(namespace, a)
}

// revisionOf returns the revision at which a namespace was stored, or an error if nothing can be created in it. By the
// error's cause controllers know that it is useless to try again.
func revisionOf(namespace *corev1.Namespace, a admission.Attributes) (int64, error) {
	if namespace.Status.Phase != corev1.NamespaceTerminating && namespace.DeletionTimestamp.IsZero() {
		revision, err := strconv.ParseInt(namespace.ResourceVersion, 10, 64)
		if err != nil {
			return 0, apierrors.NewInternalError(fmt.Errorf("namespace %s: %w", namespace.Name, err))
		}
		return revision, nil
	}
	name := a.GetNamespace()
	refusal := admission.NewForbidden(a, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
	var status *apierrors.StatusError
	if errors.As(refusal, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", name),
			Field:   "metadata.namespace",
		})
	}
	return 0, refusal
}

var _ admission.ValidationInterface = (*NamespaceLifecycle)(nil)
