package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// WithFinalizers returns storage that never removes an object which has got a finalizer since it was judged that
// nothing stands in the way of its deletion. It marks the object as being deleted instead, as if the finalizer had been
// there before.
//
// Upstream's registry reads an object, and removes it if it has no finalizers. It does not look whether it has got one
// in between, so that a controller could be told that its finalizer is there while the object goes without it.
func WithFinalizers(s storage.Interface) storage.Interface { return &finalized{s} }

type finalized struct{ storage.Interface }

// What is found when an object is looked at again. Both stay inside of Delete.
var (
	errFinalizer   = errors.New("the object got a finalizer while it was deleted")
	errNoFinalizer = errors.New("the object has no finalizer any more")
)

// Delete implements storage.Interface.
func (f *finalized) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	for {
		err := f.Interface.Delete(ctx, key, out, preconditions, unlessFinalized(validate), cached, opts)
		if !errors.Is(err, errFinalizer) {
			return err
		}
		err = f.Interface.GuaranteedUpdate(ctx, key, out, false, preconditions, mark(ctx, validate), nil)
		if !errors.Is(err, errNoFinalizer) {
			return err
		}
	}
}

func unlessFinalized(validate storage.ValidateObjectFunc) storage.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := validate(ctx, obj); err != nil {
			return err
		}
		// What is no object was not readable, and is removed because somebody insists.
		if now, err := meta.Accessor(obj); err == nil && waits(now) {
			return errFinalizer
		}
		return nil
	}
}

// waits reports whether an object would have to be marked to be deleted. One that is being deleted is removed by
// upstream in place of the write that would take its last finalizer. Nor do the finalizers of the garbage collector
// count: the deletion itself decides about these.
func waits(obj metav1.Object) bool {
	return obj.GetDeletionTimestamp() == nil && slices.ContainsFunc(obj.GetFinalizers(), func(f string) bool {
		return f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents
	})
}

// mark marks an object as being deleted, as upstream's registry does.
func mark(ctx context.Context, validate storage.ValidateObjectFunc) storage.UpdateFunc {
	return func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := validate(ctx, obj); err != nil {
			return nil, nil, err
		}
		now, err := meta.Accessor(obj)
		if err != nil {
			return nil, nil, fmt.Errorf("mark what is deleted: %w", err)
		}
		switch {
		case now.GetDeletionTimestamp() != nil:
			return obj, nil, nil
		case !waits(now):
			return nil, nil, errNoFinalizer
		}
		now.SetDeletionTimestamp(ptr.To(metav1.Now()))
		now.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
		if now.GetGeneration() > 0 {
			now.SetGeneration(now.GetGeneration() + 1)
		}
		return obj, nil, nil
	}
}
