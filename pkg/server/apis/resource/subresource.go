package resource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Subresource is a subresource that is a part of the object, such as its status.
type Subresource[T Object] struct {
	// Keep undoes changes of obj that do not belong to the subresource.
	Keep func(obj, old T)
	// Validate checks the change, in addition to the definition's rules. It may be nil.
	Validate func(obj, old T) field.ErrorList
	// Reset are the fields that the subresource ignores in server-side apply.
	Reset *fieldpath.Set
}

// subresourceStore serves the subresource. It shares the storage of the main resource and does not own it.
type subresourceStore struct {
	store  *genericregistry.Store
	fields rest.ResetFieldsStrategy
}

// subresource returns the handler of requests for a subresource of a store.
func (d Definition[T]) subresource(typer runtime.ObjectTyper, of *Store, sub Subresource[T]) rest.Storage {
	shared := *of.Store
	updates := &subresourceStrategy[T]{strategy: strategy[T]{ObjectTyper: typer, def: d}, subresource: sub}
	shared.UpdateStrategy = updates
	shared.ResetFieldsStrategy = updates
	return &subresourceStore{store: &shared, fields: updates}
}

func (s *subresourceStore) New() runtime.Object { return s.store.New() }

// Destroy leaves the storage to the main resource.
func (s *subresourceStore) Destroy() {}

func (s *subresourceStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, opts)
}

// Update never creates, whatever forceAllowCreate says: a subresource without its object makes no sense.
func (s *subresourceStore) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, opts *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, false, opts)
}

func (s *subresourceStore) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.fields.GetResetFields()
}

func (s *subresourceStore) ConvertToTable(ctx context.Context, obj, opts runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, opts)
}

var (
	_ rest.Patcher             = (*subresourceStore)(nil)
	_ rest.ResetFieldsStrategy = (*subresourceStore)(nil)
	_ rest.TableConvertor      = (*subresourceStore)(nil)
)
