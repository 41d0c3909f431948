package resource

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// View shows the objects of a resource under another API version, with types and rules of its own.
type View[T Object] struct {
	GroupVersion schema.GroupVersion
	// Object and List are empty values of the view's types.
	Object, List runtime.Object
	// Convert registers the conversions between the view's types and the resource's, and the fields that selectors
	// may name. It must not be nil.
	Convert func(scheme *runtime.Scheme) error
	// ValidateCreate checks a new object, ValidateUpdate a change, in addition to the definition's rules. They must
	// not be nil.
	ValidateCreate func(obj T) field.ErrorList
	ValidateUpdate func(obj, old T) field.ErrorList
}

// view returns the handler of requests for a view of a store.
func (d Definition[T]) view(typer runtime.ObjectTyper, of *Store, view View[T]) rest.Storage {
	shared := *of.Store
	main := &strategy[T]{ObjectTyper: typer, def: d, view: &view}
	shared.CreateStrategy, shared.UpdateStrategy, shared.ResetFieldsStrategy = main, main, main
	shared.DestroyFunc = func() {}
	return &Store{Store: &shared, shortNames: of.shortNames, categories: of.categories}
}
