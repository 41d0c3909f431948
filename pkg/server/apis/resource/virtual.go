package resource

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Kinds are types of an API version that are served and not stored: reviews, and requests for tokens.
type Kinds struct {
	GroupVersion schema.GroupVersion
	// Objects are empty values of the types.
	Objects []runtime.Object
}

// AddToScheme registers the types.
func (k Kinds) AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(k.GroupVersion, k.Objects...)
	scheme.AddKnownTypes(schema.GroupVersion{Group: k.GroupVersion.Group, Version: runtime.APIVersionInternal}, k.Objects...)
}

// Virtual is a resource or subresource of which clients create objects that nothing stores: the answer is the object,
// filled in.
type Virtual struct {
	// GroupVersion and Name say where it is served. A name is "tokenreviews", or "serviceaccounts/token" for a
	// subresource.
	GroupVersion schema.GroupVersion
	Name         string
	// Storage is a rest.Creater, or a rest.NamedCreater for a subresource.
	Storage rest.Storage
}

// Review answers objects of type T. It is the Storage of a Virtual.
type Review[T Object] struct {
	// Singular is the resource's name in the singular.
	Singular string
	// Namespaced says that clients create the objects in a namespace.
	Namespaced bool
	// Empty is an empty object.
	Empty T
	// Answer returns obj with its status. Errors are those of the API. It may change obj.
	Answer func(ctx context.Context, obj T) (T, error)
}

// New implements rest.Storage.
func (r Review[T]) New() runtime.Object { return r.Empty.DeepCopyObject() }

// Destroy implements rest.Storage.
func (r Review[T]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r Review[T]) NamespaceScoped() bool { return r.Namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (r Review[T]) GetSingularName() string { return r.Singular }

// Create implements rest.Creater.
func (r Review[T]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	asked, ok := obj.(T)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no %s", obj, r.Singular))
	}
	if validate != nil {
		if err := validate(ctx, asked.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return r.Answer(ctx, asked)
}

var (
	_ rest.Creater              = Review[Object]{}
	_ rest.Scoper               = Review[Object]{}
	_ rest.SingularNameProvider = Review[Object]{}
)
