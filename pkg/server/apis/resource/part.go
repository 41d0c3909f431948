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

// Part is a subresource that is a part of the object, such as its status.
type Part[T Object] struct {
	// Keep undoes changes of obj outside of the part.
	Keep func(obj, old T)
	// Validate judges the change, besides what the definition says. It may be nil.
	Validate func(obj, old T) field.ErrorList
	// Reset are the fields that the subresource ignores.
	Reset *fieldpath.Set
}

// partStore serves the subresource. It shares the storage of the main resource and does not own it.
type partStore struct {
	store  *genericregistry.Store
	fields rest.ResetFieldsStrategy
}

// part returns what serves a subresource of a store.
func (d Definition[T]) part(typer runtime.ObjectTyper, of *Store, part Part[T]) rest.Storage {
	shared := *of.Store
	updates := &partStrategy[T]{strategy: strategy[T]{ObjectTyper: typer, def: d}, part: part}
	shared.UpdateStrategy = updates
	shared.ResetFieldsStrategy = updates
	return &partStore{store: &shared, fields: updates}
}

func (p *partStore) New() runtime.Object { return p.store.New() }

// Destroy leaves the storage to the main resource.
func (p *partStore) Destroy() {}

func (p *partStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	return p.store.Get(ctx, name, opts)
}

// Update never creates, whatever forceAllowCreate says: a part without its object makes no sense.
func (p *partStore) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, opts *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return p.store.Update(ctx, name, info, create, update, false, opts)
}

func (p *partStore) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return p.fields.GetResetFields()
}

func (p *partStore) ConvertToTable(ctx context.Context, obj, opts runtime.Object) (*metav1.Table, error) {
	return p.store.ConvertToTable(ctx, obj, opts)
}

var (
	_ rest.Patcher             = (*partStore)(nil)
	_ rest.ResetFieldsStrategy = (*partStore)(nil)
	_ rest.TableConvertor      = (*partStore)(nil)
)
