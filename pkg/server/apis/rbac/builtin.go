package rbac

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// store serves the stored objects of a resource, and built-in ones, which are the same in all clusters. Built-in
// objects can be read in each cluster, but neither changed nor deleted. Reads over all clusters see stored objects
// only.
type store struct {
	*resource.Store
	builtIn []resource.Object // by name
}

func withBuiltIn[T resource.Object](of *resource.Store, objects []T) rest.Storage {
	s := &store{Store: of}
	for _, obj := range objects {
		s.builtIn = append(s.builtIn, obj)
	}
	return s
}

// Below implements resource.Layered.
func (s *store) Below() *resource.Store { return s.Store }

// find returns a built-in object as the context's cluster has it.
func (s *store) find(ctx context.Context, name string) (resource.Object, bool) {
	for _, obj := range s.builtIn {
		if obj.GetName() == name {
			return s.inCluster(ctx, obj)
		}
	}
	return nil, false
}

// inCluster returns a copy of a built-in object. Its uid and version are always the same.
func (s *store) inCluster(ctx context.Context, obj resource.Object) (resource.Object, bool) {
	cluster, ok := clusters.From(ctx)
	if !ok || cluster == clusters.Wildcard {
		return nil, false
	}
	out := obj.DeepCopyObject().(resource.Object)
	out.SetAnnotations(map[string]string{logicalcluster.AnnotationKey: cluster.String()})
	out.SetUID(types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(cluster.String()+"/"+s.DefaultQualifiedResource.Resource+"/"+obj.GetName())).String()))
	out.SetResourceVersion(clusters.BuiltInVersion)
	return out, true
}

// selected returns the built-in objects that a list or a watch is for.
func (s *store) selected(ctx context.Context, opts *internalversion.ListOptions) ([]runtime.Object, error) {
	predicate := s.predicate(opts)
	var out []runtime.Object
	for _, obj := range s.builtIn {
		here, ok := s.inCluster(ctx, obj)
		if !ok {
			return nil, nil
		}
		matches, err := predicate.Matches(here)
		if err != nil {
			return nil, err
		}
		if matches {
			out = append(out, here)
		}
	}
	return out, nil
}

func (s *store) predicate(opts *internalversion.ListOptions) apistorage.SelectionPredicate {
	predicate := s.PredicateFunc(nil, nil)
	if opts != nil && opts.LabelSelector != nil {
		predicate.Label = opts.LabelSelector
	}
	if opts != nil && opts.FieldSelector != nil {
		predicate.Field = opts.FieldSelector
	}
	return predicate
}

// Get implements rest.Getter.
func (s *store) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	if obj, ok := s.find(ctx, name); ok {
		return obj, nil
	}
	return s.Store.Get(ctx, name, opts)
}

// List implements rest.Lister. The built-in objects are on the first page.
func (s *store) List(ctx context.Context, opts *internalversion.ListOptions) (runtime.Object, error) {
	list, err := s.Store.List(ctx, opts)
	if err != nil || opts != nil && opts.Continue != "" {
		return list, err
	}
	selected, err := s.selected(ctx, opts)
	if err != nil || len(selected) == 0 {
		return list, err
	}
	stored, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("a list of %s: %w", s.DefaultQualifiedResource, err)
	}
	return list, meta.SetList(list, append(selected, stored...))
}

// Watch implements rest.Watcher. A watch that begins with what exists begins with the built-in objects, which never
// change.
func (s *store) Watch(ctx context.Context, opts *internalversion.ListOptions) (watch.Interface, error) {
	events, err := s.Store.Watch(ctx, opts)
	if err != nil || !beginsWithAll(opts) {
		return events, err
	}
	selected, err := s.selected(ctx, opts)
	if err != nil {
		events.Stop()
		return nil, err
	}
	if len(selected) == 0 {
		return events, nil
	}
	return after(selected, events), nil
}

func beginsWithAll(opts *internalversion.ListOptions) bool {
	switch {
	case opts == nil:
		return true
	case opts.SendInitialEvents != nil:
		return *opts.SendInitialEvents
	}
	return opts.ResourceVersion == "" || opts.ResourceVersion == "0"
}

// Create implements rest.Creater.
func (s *store) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, opts *metav1.CreateOptions) (runtime.Object, error) {
	of, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	name := of.GetName()
	if name == "" {
		name = of.GetGenerateName() // what is added to it makes no built-in name of it
	}
	if err := s.refuse(ctx, name); err != nil {
		return nil, err
	}
	return s.Store.Create(ctx, obj, validate, opts)
}

// Update implements rest.Updater.
func (s *store) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, opts *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if err := s.refuse(ctx, name); err != nil {
		return nil, false, err
	}
	return s.Store.Update(ctx, name, info, create, update, forceCreate, opts)
}

// Delete implements rest.GracefulDeleter.
func (s *store) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, opts *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if err := s.refuse(ctx, name); err != nil {
		return nil, false, err
	}
	return s.Store.Delete(ctx, name, validate, opts)
}

// refuse returns an error for a name that is built in, or may be in a later version.
func (s *store) refuse(ctx context.Context, name string) error {
	if _, ok := s.find(ctx, name); !ok && !strings.HasPrefix(name, access.ReservedPrefix) {
		return nil
	}
	return apierrors.NewForbidden(s.DefaultQualifiedResource, name,
		fmt.Errorf("it is built into all logical clusters and cannot be changed: use another name (names that begin with %s are reserved)", access.ReservedPrefix))
}

var (
	_ rest.StandardStorage      = (*store)(nil)
	_ rest.StorageWithReadiness = (*store)(nil)
	_ resource.Layered          = (*store)(nil)
)
