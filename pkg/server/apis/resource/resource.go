// Package resource turns the description of a resource into a served one. The description has the resource's types,
// names, rules, selectable fields and table columns, and says how it is stored. This package does what all resources
// have in common, on upstream's generic registry.
//
// To add a resource, describe it by a Definition in a file of its group's package, and list it in the group's
// Resources. Scheme, storage, discovery, informers, OpenAPI, garbage collection and the deletion of namespaces and
// clusters derive from that (`make generate` writes the OpenAPI definitions).
package resource

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Object is a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.Object
}

// Described is a Definition of any type of objects.
type Described interface {
	// Resource returns the names of the resource.
	Resource() Resource
	// Types returns an empty object and an empty list of each API version that clients see.
	Types() []runtime.Object
	// AddToScheme registers the types, their defaults, and the fields that selectors may name. It fails if the
	// definition contradicts itself.
	AddToScheme(scheme *runtime.Scheme) error
	// Encoding returns how the objects are stored.
	Encoding(serializer runtime.StorageSerializer) storage.Encoding
	// Serve returns the handlers of requests for the resource and its subresources, over storage that getter
	// provides. The caller must destroy them, and fill in shards before the first request.
	Serve(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter, shards *Shards) (VersionedStorage, error)
}

// VersionedStorage has the handlers of requests by API version and by the name in the URL: "namespaces",
// "namespaces/status".
type VersionedStorage map[schema.GroupVersion]map[string]rest.Storage

// Resource names a resource.
type Resource struct {
	// GVR has the version that is stored.
	GVR        schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Definition describes the resource whose objects are of type T. Functions may be nil unless their comment says
// otherwise. They get objects whose defaults are set. Only Default and functions named Prepare may change obj.
type Definition[T Object] struct {
	// GVR has the version that is stored. The kind is the name of T.
	GVR        schema.GroupVersionResource
	Namespaced bool
	ShortNames []string
	Categories []string
	// List is an empty list of objects. It must not be nil.
	List   runtime.Object
	Stored Stored[T]

	// Default sets the defaults of a decoded object.
	Default func(obj T)
	// PrepareCreate brings a new object into its initial state. It must reset the status, which is as the client
	// sent it.
	PrepareCreate func(obj T)
	// PrepareUpdate undoes changes that an update of the main resource must not make, such as changes of the
	// status.
	PrepareUpdate func(obj, old T)
	// Name returns what is wrong with a name, or with the prefix of a generated one. It must not be nil.
	Name func(name string, prefix bool) []string
	// Validate checks an object, new or changed, except for its metadata. ValidateUpdate also checks the change.
	Validate       func(obj T) field.ErrorList
	ValidateUpdate func(obj, old T) field.ErrorList
	// ValidateCreate checks a new object, in addition to Validate.
	ValidateCreate func(obj T) field.ErrorList
	// Warn returns warnings about an object that does no harm to others: a new one, if old is nil, or a change.
	Warn func(obj, old T) []string
	// BuiltIn returns the objects that each logical cluster has until somebody changes them.
	BuiltIn func(clusters.BuiltIn) []T
	// CreateOnUpdate says that a PUT may create an object.
	CreateOnUpdate bool
	// Unconditional says that an update needs no resourceVersion.
	Unconditional bool
	// Reset are the fields that the main resource ignores in server-side apply.
	Reset *fieldpath.Set

	// Fields returns the fields that field selectors may name besides metadata.name and metadata.namespace. It must
	// return the same fields for each object.
	Fields func(obj T) fields.Set
	// Columns are the columns of the table that kubectl prints. There must be at least one.
	Columns []Column[T]
	// Subresources are the subresources, by name.
	Subresources map[string]Subresource[T]
	// Views are the other API versions that show the same objects.
	Views []View[T]
	// Wrap returns the handler of the main resource in place of store. It may set hooks of store.
	Wrap func(store *Store) rest.Storage
}

// Stored says how objects of type T are stored. With the zero value they are stored in protobuf, behind a watch cache,
// until they are deleted.
type Stored[T Object] struct {
	// JSONOnly is for types that have no protobuf encoding, neither in storage nor for clients.
	JSONOnly bool
	// Uncached objects have no watch cache: lists and watches go to etcd. It is for objects that are written much
	// more often than read.
	Uncached bool
	// TTL is how many seconds objects live after their last change. 0: until they are deleted.
	TTL uint64
	// Term returns the term that a Lease shows. Fencing tokens are compared with it. It is nil for all other types.
	Term func(obj T) fence.Token
	// Share is called with the bytes of an object that is about to be decoded for the watch cache. It returns which
	// of them to decode, and a function that is called with the object: it replaces parts by equal parts of other
	// objects, which nobody modifies, or puts in what was not decoded.
	Share func(data []byte) (rest []byte, complete func(obj T))
}

// Resource implements Described.
func (d Definition[T]) Resource() Resource {
	return Resource{GVR: d.GVR, Kind: d.kind(), Namespaced: d.Namespaced}
}

// Types implements Described.
func (d Definition[T]) Types() []runtime.Object {
	out := []runtime.Object{d.newObject(), d.newList()}
	for _, v := range d.Views {
		out = append(out, v.Object, v.List)
	}
	return out
}

// Encoding implements Described.
func (d Definition[T]) Encoding(serializer runtime.StorageSerializer) storage.Encoding {
	out := storage.Encoding{
		Serializer: serializer, Version: d.GVR.GroupVersion(), MediaType: runtime.ContentTypeProtobuf, Uncached: d.Stored.Uncached,
	}
	if d.Stored.JSONOnly {
		out.MediaType = runtime.ContentTypeJSON
	}
	if d.Stored.Term != nil {
		out.Term = func(obj runtime.Object) fence.Token {
			if typed, ok := obj.(T); ok {
				return d.Stored.Term(typed)
			}
			return fence.Token{}
		}
	}
	if d.BuiltIn != nil {
		out.BuiltIn = func(of clusters.BuiltIn) (all []runtime.Object) {
			for _, obj := range d.BuiltIn(of) {
				all = append(all, obj)
			}
			return all
		}
	}
	if d.Stored.Share != nil {
		out.Share = func(data []byte) ([]byte, func(runtime.Object)) {
			rest, complete := d.Stored.Share(data)
			return rest, func(obj runtime.Object) {
				if typed, ok := obj.(T); ok {
					complete(typed)
				}
			}
		}
	}
	return out
}

// AddToScheme implements Described. The server works with the served types themselves, so only views need conversions.
func (d Definition[T]) AddToScheme(scheme *runtime.Scheme) error {
	if err := d.check(); err != nil {
		return fmt.Errorf("%s: %w", d.GVR.GroupResource(), err)
	}
	gv := d.GVR.GroupVersion()
	d.addTypes(scheme, gv, d.newObject(), d.newList())
	if d.Default != nil {
		scheme.AddTypeDefaultingFunc(d.newObject(), func(obj any) { d.Default(obj.(T)) })
	}
	if err := scheme.AddFieldLabelConversionFunc(gv.WithKind(d.kind()), d.selectable); err != nil {
		return fmt.Errorf("%s: field labels: %w", d.GVR.GroupResource(), err)
	}
	for _, v := range d.Views {
		d.addTypes(scheme, v.GroupVersion, v.Object, v.List)
		if err := v.Convert(scheme); err != nil {
			return fmt.Errorf("%s: conversion to %s: %w", d.GVR.GroupResource(), v.GroupVersion, err)
		}
	}
	return nil
}

// addTypes registers the types that clients of a version see, and the types that the server works with internally.
func (d Definition[T]) addTypes(scheme *runtime.Scheme, gv schema.GroupVersion, seen ...runtime.Object) {
	scheme.AddKnownTypes(gv, seen...)
	scheme.AddKnownTypes(schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}, d.newObject(), d.newList())
	metav1.AddToGroupVersion(scheme, gv)
}

// check finds faults of a definition that would otherwise show only when the resource is used.
func (d Definition[T]) check() error {
	if d.List == nil || d.Name == nil || len(d.Columns) == 0 {
		return errors.New("the definition must have List, Name and Columns")
	}
	items, err := meta.GetItemsPtr(d.List)
	if err != nil {
		return fmt.Errorf("%T is no list: %w", d.List, err)
	}
	if of := reflect.TypeOf(items).Elem().Elem(); of != reflect.TypeFor[T]().Elem() {
		return fmt.Errorf("%T is a list of %s, not of %s", d.List, of, d.kind())
	}
	return nil
}

// selectable tells the scheme which fields selectors may name.
func (d Definition[T]) selectable(label, value string) (string, string, error) {
	known := label == "metadata.name" || label == "metadata.namespace"
	if !known && d.Fields != nil {
		known = d.Fields(d.newObject()).Has(label)
	}
	if !known {
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	return label, value, nil
}

func (d Definition[T]) kind() string     { return reflect.TypeFor[T]().Elem().Name() }
func (d Definition[T]) singular() string { return strings.ToLower(d.kind()) }

func (d Definition[T]) newObject() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }

func (d Definition[T]) newList() runtime.Object { return d.List.DeepCopyObject() }

var _ Described = Definition[Object]{}
