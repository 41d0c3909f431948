package resource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// Store is the registry of a resource. It supports all verbs.
type Store struct {
	*genericregistry.Store
	shortNames, categories []string
}

// Layered is storage that shows clients more than is stored. The server itself reads Below.
type Layered interface{ Below() *Store }

// ShortNames implements rest.ShortNamesProvider.
func (s *Store) ShortNames() []string { return s.shortNames }

// Categories implements rest.CategoriesProvider.
func (s *Store) Categories() []string { return s.categories }

// Serve implements Described. Subresources and views share the storage of the main resource; only the main resource
// destroys it.
func (d Definition[T]) Serve(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter, shards *Shards) (VersionedStorage, error) {
	store, err := d.store(typer, getter, shards)
	if err != nil {
		return nil, fmt.Errorf("registry of %s: %w", d.GVR.GroupResource(), err)
	}
	name := d.GVR.Resource
	main := map[string]rest.Storage{name: store}
	if d.Wrap != nil {
		main[name] = d.Wrap(store)
	}
	for sub, s := range d.Subresources {
		main[name+"/"+sub] = d.subresource(typer, store, s)
	}
	storage := VersionedStorage{d.GVR.GroupVersion(): main}
	for _, v := range d.Views {
		storage[v.GroupVersion] = map[string]rest.Storage{name: d.view(typer, store, v)}
	}
	return storage, nil
}

func (d Definition[T]) store(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter, shards *Shards) (*Store, error) {
	main := &strategy[T]{ObjectTyper: typer, def: d}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return d.newObject() },
		NewListFunc:               d.newList,
		PredicateFunc:             d.predicate,
		DefaultQualifiedResource:  d.GVR.GroupResource(),
		SingularQualifiedResource: schema.GroupResource{Group: d.GVR.Group, Resource: d.singular()},
		CreateStrategy:            main,
		UpdateStrategy:            main,
		DeleteStrategy:            main,
		ResetFieldsStrategy:       main,
		TableConvertor:            tableConvertor[T]{d.Columns, shards},
	}
	if ttl := d.Stored.TTL; ttl > 0 {
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return ttl, nil }
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: d.attrs}); err != nil {
		return nil, err
	}
	return &Store{Store: store, shortNames: d.ShortNames, categories: d.Categories}, nil
}

func (d Definition[T]) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no %s", obj, d.kind())
	}
	set := fields.Set{"metadata.name": object.GetName()}
	if d.Namespaced {
		set["metadata.namespace"] = object.GetNamespace()
	}
	if d.Fields != nil {
		for k, v := range d.Fields(object) {
			set[k] = v
		}
	}
	return object.GetLabels(), set, nil
}

func (d Definition[T]) predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: d.attrs}
}

var (
	_ rest.StandardStorage    = (*Store)(nil)
	_ rest.ShortNamesProvider = (*Store)(nil)
	_ rest.CategoriesProvider = (*Store)(nil)
)
