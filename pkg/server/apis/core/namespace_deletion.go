package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// namespaceStore serves namespaces. A deletion makes a namespace Terminating. It goes when its content is gone, that is
// when the namespace controller has removed the last of spec.finalizers:
//
//	Active --delete--> Terminating --spec.finalizers and metadata.finalizers empty--> gone
//
// As in Kubernetes, there is no deletecollection.
type namespaceStore struct {
	store *resource.Store
	rest.ResetFieldsStrategy
	rest.TableConvertor
}

func newNamespaceStore(store *resource.Store) rest.Storage {
	store.ShouldDeleteDuringUpdate = finalized
	return &namespaceStore{store: store, ResetFieldsStrategy: store.ResetFieldsStrategy, TableConvertor: store.TableConvertor}
}

// finalized reports whether an update is the last of a deleted namespace.
func finalized(ctx context.Context, key string, obj, existing runtime.Object) bool {
	ns, ok := obj.(*corev1.Namespace)
	return ok && len(ns.Spec.Finalizers) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
}

// Delete implements rest.GracefulDeleter.
func (s *namespaceStore) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if opts == nil {
		opts = metav1.NewDeleteOptions(0)
	}
	terminating, err := s.terminate(ctx, name, validate, opts)
	if err != nil {
		return nil, false, err
	}
	if len(terminating.Spec.Finalizers) > 0 || len(terminating.Finalizers) > 0 || dryrun.IsDryRun(opts.DryRun) {
		return terminating, false, nil
	}
	opts = opts.DeepCopy()
	if opts.Preconditions == nil {
		opts.Preconditions = &metav1.Preconditions{}
	}
	opts.Preconditions.UID, opts.Preconditions.ResourceVersion = &terminating.UID, nil
	return s.store.Delete(ctx, name, validate, opts)
}

// terminate marks the namespace as being deleted, if it is not yet.
func (s *namespaceStore) terminate(ctx context.Context, name string, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions) (*corev1.Namespace, error) {
	key, err := s.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	preconditions := &storage.Preconditions{}
	if given := opts.Preconditions; given != nil {
		preconditions.UID, preconditions.ResourceVersion = given.UID, given.ResourceVersion
	}
	out := &corev1.Namespace{}
	resourceName := corev1.Resource("namespaces")
	err = s.store.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions, storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
		ns, ok := current.(*corev1.Namespace)
		if !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("a %T is stored as namespace %q", current, name))
		}
		if validate != nil {
			if err := validate(ctx, ns); err != nil {
				return nil, err
			}
		}
		if ns.DeletionTimestamp.IsZero() {
			now := metav1.Now()
			ns.DeletionTimestamp = &now
			ns.Finalizers = finalizersFor(ns.Finalizers, opts)
		}
		ns.Status.Phase = corev1.NamespaceTerminating
		return ns, nil
	}), dryrun.IsDryRun(opts.DryRun), nil)
	if err != nil {
		return nil, storeerr.InterpretUpdateError(storeerr.InterpretGetError(err, resourceName, name), resourceName, name)
	}
	return out, nil
}

// finalizersFor returns metadata.finalizers with those that the deletion's propagation policy requires.
func finalizersFor(finalizers []string, opts *metav1.DeleteOptions) []string {
	orphanDependents := opts.OrphanDependents //nolint:staticcheck // deprecated, and still what older clients send
	orphan := orphanDependents != nil && *orphanDependents
	foreground := false
	if policy := opts.PropagationPolicy; policy != nil {
		orphan, foreground = *policy == metav1.DeletePropagationOrphan, *policy == metav1.DeletePropagationForeground
	} else if orphanDependents == nil {
		return finalizers
	}
	out := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}
