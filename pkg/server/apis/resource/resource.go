// Package resource makes a served resource of what is particular about it: its types, names, validation, selectable
// fields and table columns. All else is alike for all resources and is done here on upstream's generic registry.
package resource

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Object is what a resource consists of.
type Object interface {
	runtime.Object
	metav1.Object
}

// Definition says what is particular about a resource of type T. Unless said otherwise a function may be nil. Functions
// get objects whose defaults are set; those called Prepare may change obj, no other changes anything.
type Definition[T Object] struct {
	// GVR has the version that is stored.
	GVR            schema.GroupVersionResource
	Kind, Singular string
	// Version is the API version clients use, if it is not that of GVR.
	Version    string
	Namespaced bool
	ShortNames []string
	Categories []string
	New        func() T // never nil
	NewList    func() runtime.Object

	// PrepareCreate brings a new object into its first state. Its status is what the client sent, until reset here.
	PrepareCreate func(obj T)
	// PrepareUpdate undoes changes that an update of the main resource may not make, such as those of the status.
	PrepareUpdate func(obj, old T)
	// Validate judges any version of an object, without its metadata. Name judges the name.
	Validate func(obj T) field.ErrorList
	// ValidateCreate judges a new object, ValidateUpdate a change; Validate is called as well.
	ValidateCreate func(obj T) field.ErrorList
	ValidateUpdate func(obj, old T) field.ErrorList
	// Name returns what is wrong with a name, or with the fixed part of a generated one. Never nil.
	Name func(name string, prefix bool) []string
	// CreateOnUpdate lets a PUT create.
	CreateOnUpdate bool
	// Unconditional lets an update come without a resourceVersion.
	Unconditional bool
	// Reset are fields that the main resource ignores, for server-side apply.
	Reset *fieldpath.Set
	// TTL is the life of objects in seconds; 0: until deleted.
	TTL uint64

	// Fields are what field selectors may name besides metadata.name and metadata.namespace. Each of them must also be
	// in FieldLabels.
	Fields func(obj T) fields.Set
	// Columns of the table that kubectl prints.
	Columns []Column[T]
}

// Store is a resource's registry. It offers all verbs.
type Store struct {
	*genericregistry.Store
	shortNames, categories []string
}

// ShortNames implements rest.ShortNamesProvider.
func (s *Store) ShortNames() []string { return s.shortNames }

// Categories implements rest.CategoriesProvider.
func (s *Store) Categories() []string { return s.categories }

// Store makes the resource's registry over the storage that getter provides. The caller destroys it.
func (d Definition[T]) Store(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*Store, error) {
	main := &strategy[T]{ObjectTyper: typer, def: d}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return d.New() },
		NewListFunc:               d.NewList,
		PredicateFunc:             d.predicate,
		DefaultQualifiedResource:  d.GVR.GroupResource(),
		SingularQualifiedResource: schema.GroupResource{Group: d.GVR.Group, Resource: d.Singular},
		CreateStrategy:            main,
		UpdateStrategy:            main,
		DeleteStrategy:            main,
		ResetFieldsStrategy:       main,
		TableConvertor:            tableConvertor[T]{d.Columns},
	}
	if d.TTL > 0 {
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return d.TTL, nil }
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: d.attrs}); err != nil {
		return nil, fmt.Errorf("registry of %s: %w", d.GVR.GroupResource(), err)
	}
	return &Store{Store: store, shortNames: d.ShortNames, categories: d.Categories}, nil
}

// Share makes a registry over the storage of another one of the same type, for a second API version with rules of its
// own. It is not to be destroyed.
func (d Definition[T]) Share(typer runtime.ObjectTyper, of *Store) rest.Storage {
	shared := *of.Store
	main := &strategy[T]{ObjectTyper: typer, def: d}
	shared.CreateStrategy, shared.UpdateStrategy, shared.ResetFieldsStrategy = main, main, main
	shared.DestroyFunc = func() {}
	return &Store{Store: &shared, shortNames: d.ShortNames, categories: d.Categories}
}

func (d Definition[T]) version() string {
	if d.Version != "" {
		return d.Version
	}
	return d.GVR.GroupVersion().String()
}

func (d Definition[T]) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no %s", obj, d.Kind)
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

// AddFieldLabels lets field selectors name the given fields of a kind, besides metadata.name and metadata.namespace.
// They match only if Definition.Fields returns them too.
func AddFieldLabels(scheme *runtime.Scheme, gvk schema.GroupVersionKind, labels ...string) error {
	allowed := map[string]bool{"metadata.name": true, "metadata.namespace": true}
	for _, l := range labels {
		allowed[l] = true
	}
	return scheme.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
		if !allowed[label] {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	})
}

// AddSelf registers types under the group's internal version as well: what is stored and served is also what the server
// works with, so nothing needs to be converted.
func AddSelf(scheme *runtime.Scheme, gv schema.GroupVersion, types ...runtime.Object) {
	scheme.AddKnownTypes(gv, types...)
	scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, types...)
	metav1.AddToGroupVersion(scheme, gv)
}

var (
	_ rest.StandardStorage    = (*Store)(nil)
	_ rest.ShortNamesProvider = (*Store)(nil)
	_ rest.CategoriesProvider = (*Store)(nil)
)
