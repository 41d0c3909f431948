package apiextensions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// store serves definitions. A deletion marks a definition, and makes it wait for its objects, which a controller
// deletes:
//
//	Established --delete--> Terminating --the controller finds no object--> gone
type store struct{ *resource.Store }

func newStore(of *resource.Store) rest.Storage { return &store{of} }

// Below implements resource.Layered.
func (s *store) Below() *resource.Store { return s.Store }

// Delete implements rest.GracefulDeleter.
func (s *store) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if opts == nil {
		opts = metav1.NewDeleteOptions(0)
	}
	marked, done, err := s.mark(ctx, name, validate, opts)
	if err != nil || !done {
		return marked, false, err
	}
	return s.Store.Delete(ctx, name, validate, opts)
}

// errMarked says that a definition was marked before.
var errMarked = errors.New("the definition is being deleted already")

// mark makes a definition wait for its objects. It returns whether it was marked before.
func (s *store) mark(ctx context.Context, name string, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions) (out definition, before bool, err error) {
	key, err := s.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	preconditions := &storage.Preconditions{}
	if given := opts.Preconditions; given != nil {
		preconditions.UID, preconditions.ResourceVersion = given.UID, given.ResourceVersion
	}
	out = &apiextensionsv1.CustomResourceDefinition{}
	err = s.Storage.GuaranteedUpdate(ctx, key, out, false, preconditions, storage.SimpleUpdate(func(current runtime.Object) (runtime.Object, error) {
		d, ok := current.(definition)
		if !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("a %T is stored as definition %q", current, name))
		}
		if d.DeletionTimestamp != nil {
			return nil, errMarked
		}
		if validate != nil {
			if err := validate(ctx, d); err != nil {
				return nil, err
			}
		}
		terminate(d, metav1.Now())
		return d, nil
	}), dryrun.IsDryRun(opts.DryRun), nil)
	if errors.Is(err, errMarked) {
		return nil, true, nil
	}
	if err != nil {
		of := apiextensionsv1.Resource("customresourcedefinitions")
		return nil, false, storeerr.InterpretUpdateError(storeerr.InterpretGetError(err, of, name), of, name)
	}
	return out, false, nil
}

func terminate(d definition, now metav1.Time) {
	d.DeletionTimestamp, d.DeletionGracePeriodSeconds = &now, new(int64)
	if !slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		d.Finalizers = append(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(d, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message:            "The definition is being deleted, and its objects before it",
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}

// DeleteCollection implements rest.CollectionDeleter. Upstream's would delete definitions without waiting for their
// objects.
func (s *store) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions, selected *internalversion.ListOptions,
) (runtime.Object, error) {
	list, err := s.List(ctx, selected)
	if err != nil {
		return nil, err
	}
	return list, meta.EachListItem(list, func(obj runtime.Object) error {
		d, ok := obj.(definition)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("a %T is stored as a definition", obj))
		}
		_, _, err := s.Delete(ctx, d.Name, validate, opts.DeepCopy())
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

var _ rest.StandardStorage = (*store)(nil)
