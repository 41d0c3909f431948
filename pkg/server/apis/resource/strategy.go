package resource

import (
	"context"
	"maps"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
)

// strategy implements the strategies of upstream's registry by a definition.
type strategy[T Object] struct {
	runtime.ObjectTyper
	def Definition[T]
	// view is the view through which clients see the resource. Nil: they see it as the definition says.
	view *View[T]
}

func (s *strategy[T]) GenerateName(base string) string {
	return names.SimpleNameGenerator.GenerateName(base)
}

func (s *strategy[T]) NamespaceScoped() bool { return s.def.Namespaced }

func (s *strategy[T]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	mark(ctx, obj.(T))
	if s.def.PrepareCreate != nil {
		s.def.PrepareCreate(obj.(T))
	}
}

// mark writes the logical cluster into an object, for the answers to dry runs. Storage marks the objects that it stores
// by itself.
func mark(ctx context.Context, obj Object) {
	cluster, ok := clusters.From(ctx)
	if !ok {
		return
	}
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = cluster.String()
	obj.SetAnnotations(annotations)
}

func (s *strategy[T]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	errs := s.validate(obj.(T))
	if s.def.ValidateCreate != nil {
		errs = append(errs, s.def.ValidateCreate(obj.(T))...)
	}
	if s.view != nil {
		errs = append(errs, s.view.ValidateCreate(obj.(T))...)
	}
	return errs
}

func (s *strategy[T]) validate(obj T) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessor(obj, s.def.Namespaced, s.def.Name, field.NewPath("metadata"))
	if s.def.Validate != nil {
		errs = append(errs, s.def.Validate(obj)...)
	}
	return errs
}

func (s *strategy[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	mark(ctx, obj.(T))
	sameKind(obj, old)
	if s.def.PrepareUpdate != nil {
		s.def.PrepareUpdate(obj.(T), old.(T))
	}
}

// sameKind gives an object the kind of its stored state. What clients send comes without one, and what is read from
// etcd with it. If they differed, upstream would not see that an apply has changed nothing but the times in
// managedFields, and would write these.
func sameKind(obj, old runtime.Object) {
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
}

func (s *strategy[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.validate(obj.(T))
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj.(T), old.(T), field.NewPath("metadata"))...)
	if s.def.ValidateUpdate != nil {
		errs = append(errs, s.def.ValidateUpdate(obj.(T), old.(T))...)
	}
	if s.view != nil {
		errs = append(errs, s.view.ValidateUpdate(obj.(T), old.(T))...)
	}
	return errs
}

func (s *strategy[T]) AllowCreateOnUpdate(context.Context) bool { return s.def.CreateOnUpdate }

func (s *strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return s.def.Unconditional }

func (s *strategy[T]) Canonicalize(runtime.Object) {}

func (s *strategy[T]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if s.def.Warn == nil {
		return nil
	}
	var none T
	return s.def.Warn(obj.(T), none)
}

func (s *strategy[T]) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	if s.def.Warn == nil {
		return nil
	}
	return s.def.Warn(obj.(T), old.(T))
}

func (s *strategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.ignored(s.def.Reset)
}

// ignored returns the fields with the API version that they belong to.
func (s *strategy[T]) ignored(set *fieldpath.Set) map[fieldpath.APIVersion]*fieldpath.Set {
	if set == nil {
		return nil
	}
	version := s.def.GVR.GroupVersion()
	if s.view != nil {
		version = s.view.GroupVersion
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(version.String()): set}
}

// subresourceStrategy updates the subresource and leaves the rest of the object as it is.
type subresourceStrategy[T Object] struct {
	strategy[T]
	subresource Subresource[T]
}

func (s *subresourceStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.subresource.Keep(obj.(T), old.(T))
}

func (s *subresourceStrategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.strategy.ValidateUpdate(ctx, obj, old)
	if s.subresource.Validate != nil {
		errs = append(errs, s.subresource.Validate(obj.(T), old.(T))...)
	}
	return errs
}

func (s *subresourceStrategy[T]) AllowCreateOnUpdate(context.Context) bool { return false }

func (s *subresourceStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.ignored(s.subresource.Reset)
}

var (
	_ rest.RESTCreateStrategy  = (*strategy[Object])(nil)
	_ rest.RESTUpdateStrategy  = (*strategy[Object])(nil)
	_ rest.RESTDeleteStrategy  = (*strategy[Object])(nil)
	_ rest.ResetFieldsStrategy = (*strategy[Object])(nil)
)
