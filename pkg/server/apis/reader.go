package apis

import (
	"context"
	"fmt"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Reader reads what stands in storage, in the logical cluster of the context, for the server's own decisions about a
// request. It makes no request of its own: one could not get through any more when the listener has closed, and then the
// requests in flight could not finish.
//
// Its errors are those of requests: NotFound if there is no such object.
type Reader struct{ namespaces, workspaces, logicalClusters rest.Getter }

func newReader(core, tenancy, kcpcore map[string]rest.Storage) (*Reader, error) {
	r := &Reader{}
	for name, field := range map[string]*rest.Getter{
		"namespaces": &r.namespaces, "workspaces": &r.workspaces, "logicalclusters": &r.logicalClusters,
	} {
		for _, storage := range []map[string]rest.Storage{core, tenancy, kcpcore} {
			if getter, ok := storage[name].(rest.Getter); ok {
				*field = getter
			}
		}
		if *field == nil {
			return nil, fmt.Errorf("the storage of %s cannot be read", name)
		}
	}
	return r, nil
}

// Namespace reads a namespace.
func (r *Reader) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return read[*corev1.Namespace](ctx, r.namespaces, name)
}

// Workspace reads a workspace.
func (r *Reader) Workspace(ctx context.Context, name string) (*tenancyv1alpha1.Workspace, error) {
	return read[*tenancyv1alpha1.Workspace](ctx, r.workspaces, name)
}

// LogicalCluster reads the LogicalCluster.
func (r *Reader) LogicalCluster(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	return read[*corev1alpha1.LogicalCluster](ctx, r.logicalClusters, corev1alpha1.LogicalClusterName)
}

func read[T runtime.Object](ctx context.Context, from rest.Getter, name string) (T, error) {
	var none T
	object, err := from.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return none, err
	}
	typed, ok := object.(T)
	if !ok {
		return none, fmt.Errorf("storage holds a %T where a %T should be", object, none)
	}
	return typed, nil
}
