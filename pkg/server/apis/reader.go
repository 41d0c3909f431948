package apis

import (
	"context"
	"errors"
	"fmt"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Reader reads objects from storage, in the logical cluster of the context, for the server's own decisions about a request. It
// does not use the API: once the listener has closed, such a request would fail, and the requests in flight could not finish.
//
// Its errors are those of API requests: NotFound if there is no such object.
type Reader struct{ namespaces, workspaces, logicalClusters rest.Getter }

// add makes the reader use the storage of a resource, if it is one that it reads.
func (r *Reader) add(storage rest.Storage) {
	getter, ok := storage.(rest.Getter)
	if !ok {
		return
	}
	switch storage.New().(type) {
	case *corev1.Namespace:
		r.namespaces = getter
	case *tenancyv1alpha1.Workspace:
		r.workspaces = getter
	case *corev1alpha1.LogicalCluster:
		r.logicalClusters = getter
	}
}

func (r *Reader) check() error {
	if r.namespaces == nil || r.workspaces == nil || r.logicalClusters == nil {
		return errors.New("namespaces, workspaces or logicalclusters are not served: the server cannot do without them")
	}
	return nil
}

// Namespace reads a namespace.
func (r *Reader) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return read[*corev1.Namespace](ctx, r.namespaces, name)
}

// Workspace reads a workspace.
func (r *Reader) Workspace(ctx context.Context, name string) (*tenancyv1alpha1.Workspace, error) {
	return read[*tenancyv1alpha1.Workspace](ctx, r.workspaces, name)
}

// LogicalCluster reads the cluster's LogicalCluster.
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
