package core

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
)

func (s *namespaceStore) New() runtime.Object     { return s.store.New() }
func (s *namespaceStore) NewList() runtime.Object { return s.store.NewList() }
func (s *namespaceStore) Destroy()                { s.store.Destroy() }
func (s *namespaceStore) NamespaceScoped() bool   { return false }
func (s *namespaceStore) GetSingularName() string { return s.store.GetSingularName() }
func (s *namespaceStore) ShortNames() []string    { return s.store.ShortNames() }
func (s *namespaceStore) ReadinessCheck() error   { return s.store.ReadinessCheck() }

func (s *namespaceStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, opts *metav1.CreateOptions) (runtime.Object, error) {
	return s.store.Create(ctx, obj, validate, opts)
}

func (s *namespaceStore) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, opts *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, create, update, forceCreate, opts)
}

func (s *namespaceStore) Get(ctx context.Context, name string, opts *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, opts)
}

func (s *namespaceStore) List(ctx context.Context, opts *internalversion.ListOptions) (runtime.Object, error) {
	return s.store.List(ctx, opts)
}

func (s *namespaceStore) Watch(ctx context.Context, opts *internalversion.ListOptions) (watch.Interface, error) {
	return s.store.Watch(ctx, opts)
}

var (
	_ rest.CreaterUpdater       = (*namespaceStore)(nil)
	_ rest.GracefulDeleter      = (*namespaceStore)(nil)
	_ rest.Getter               = (*namespaceStore)(nil)
	_ rest.Lister               = (*namespaceStore)(nil)
	_ rest.Watcher              = (*namespaceStore)(nil)
	_ rest.Scoper               = (*namespaceStore)(nil)
	_ rest.Patcher              = (*namespaceStore)(nil)
	_ rest.ShortNamesProvider   = (*namespaceStore)(nil)
	_ rest.SingularNameProvider = (*namespaceStore)(nil)
	_ rest.ResetFieldsStrategy  = (*namespaceStore)(nil)
	_ rest.StorageWithReadiness = (*namespaceStore)(nil)
)
