package apis

import (
	"context"
	"fmt"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Reader reads objects from storage, for the server's own decisions about a request, and for informers (see Objects).
// It does not use the API: once the listener has closed, such a request would fail, and the requests in flight could
// not finish.
//
// Its errors are those of API requests: NotFound if there is no such object.
type Reader struct {
	custom CustomObjects
	stored map[schema.GroupVersionResource]stored
}

// CustomObjects are the stored objects of all definitions.
type CustomObjects interface {
	// Metadata lists and watches them.
	Metadata() cache.ListerWatcherWithContext
}

// add makes the reader use the storage of a resource.
func (r *Reader) add(of resource.Described, storage rest.Storage) error {
	if layered, ok := storage.(resource.Layered); ok {
		storage = layered.Below()
	}
	readable, ok := storage.(readable)
	if !ok {
		return fmt.Errorf("%s cannot be read, listed and watched: informers need that", of.Resource().GVR)
	}
	r.stored[of.Resource().GVR] = stored{readable, of.Encoding(Codecs).Uncached}
	return nil
}

// Namespace reads a namespace that is stored in the logical cluster of the context. The error is NotFound for one that
// is only built in.
func (r *Reader) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return read[*corev1.Namespace](storage.StoredOnly(ctx), r, corev1.SchemeGroupVersion.WithResource("namespaces"), name)
}

// Workspace reads a workspace in the logical cluster of the context.
func (r *Reader) Workspace(ctx context.Context, name string) (*tenancyv1alpha1.Workspace, error) {
	return read[*tenancyv1alpha1.Workspace](ctx, r, tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"), name)
}

// LogicalCluster reads the LogicalCluster of the logical cluster of the context.
func (r *Reader) LogicalCluster(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	return read[*corev1alpha1.LogicalCluster](ctx, r, corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), corev1alpha1.LogicalClusterName)
}

// ServiceAccount reads a service account in the logical cluster and the namespace of the context.
func (r *Reader) ServiceAccount(ctx context.Context, name string) (*corev1.ServiceAccount, error) {
	return read[*corev1.ServiceAccount](ctx, r, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), name)
}

// Definition reads a CustomResourceDefinition in the logical cluster of the context.
func (r *Reader) Definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return read[*apiextensionsv1.CustomResourceDefinition](ctx, r, apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), name)
}

// Schema reads an APIResourceSchema in the logical cluster of the context.
func (r *Reader) Schema(ctx context.Context, name string) (*apisv1alpha1.APIResourceSchema, error) {
	return read[*apisv1alpha1.APIResourceSchema](ctx, r, apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas"), name)
}

// Export reads an APIExport in the logical cluster of the context.
func (r *Reader) Export(ctx context.Context, name string) (*apisv1alpha2.APIExport, error) {
	return read[*apisv1alpha2.APIExport](ctx, r, apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"), name)
}

// Bindings reads all APIBindings in the logical cluster of the context.
func (r *Reader) Bindings(ctx context.Context) ([]*apisv1alpha2.APIBinding, error) {
	return List[*apisv1alpha2.APIBinding](ctx, r, apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"))
}

// Secret reads a Secret in the logical cluster and the namespace of the context.
func (r *Reader) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	return read[*corev1.Secret](ctx, r, corev1.SchemeGroupVersion.WithResource("secrets"), name)
}

// Object reads an object of any resource in the logical cluster and the namespace of the context.
func (r *Reader) Object(ctx context.Context, resource schema.GroupVersionResource, name string) (metav1.Object, error) {
	return read[clusters.Object](ctx, r, resource, name)
}

// List reads all objects of a resource in the logical cluster of the context, in all namespaces.
func List[T runtime.Object](ctx context.Context, r *Reader, resource schema.GroupVersionResource) ([]T, error) {
	s, err := r.storage(resource)
	if err != nil {
		return nil, err
	}
	list, err := s.List(storage.AsStored(ctx), &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []T
	return out, meta.EachListItem(list, func(obj runtime.Object) error {
		typed, ok := obj.(T)
		if !ok {
			return fmt.Errorf("storage holds a %T among %s", obj, resource)
		}
		out = append(out, typed)
		return nil
	})
}

// storage returns the storage of a resource.
func (r *Reader) storage(resource schema.GroupVersionResource) (stored, error) {
	s, ok := r.stored[resource]
	if !ok {
		return stored{}, fmt.Errorf("%s is not stored here: give one of apis.Resources", resource)
	}
	return s, nil
}

func read[T runtime.Object](ctx context.Context, r *Reader, resource schema.GroupVersionResource, name string) (none T, err error) {
	from, err := r.storage(resource)
	if err != nil {
		return none, err
	}
	// Errors name the resource of the request, which may be another one.
	of := &request.RequestInfo{IsResourceRequest: true, APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource}
	object, err := from.Get(request.WithRequestInfo(storage.AsStored(ctx), of), name, &metav1.GetOptions{})
	if err != nil {
		return none, err
	}
	typed, ok := object.(T)
	if !ok {
		return none, fmt.Errorf("storage holds a %T where a %T should be", object, none)
	}
	return typed, nil
}
