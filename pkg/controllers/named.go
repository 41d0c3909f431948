package controllers

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/clusters"
)

// nameChecker is a metadata client that asks for nothing by a name that no object can have. client-go's puts any text
// into the path: an owner reference "." would become a list, and "../../../watch/.." a watch without an end, made with
// a controller's rights (I18). Such an object does not exist. client-go's other clients refuse such names themselves.
type nameChecker struct{ metadata.Interface }

// Resource implements metadata.Interface.
func (n nameChecker) Resource(resource schema.GroupVersionResource) metadata.Getter {
	of := n.Interface.Resource(resource)
	return namedGetter{namedResource{of, resource.GroupResource(), true}, of}
}

type namedGetter struct {
	namedResource
	getter metadata.Getter
}

// Namespace implements metadata.Getter.
func (n namedGetter) Namespace(namespace string) metadata.ResourceInterface {
	return namedResource{n.getter.Namespace(namespace), n.resource, namespace == "" || clusters.IsSegment(namespace)}
}

type namedResource struct {
	metadata.ResourceInterface
	resource schema.GroupResource
	possible bool // the namespace is
}

func (n namedResource) check(name string) error {
	if n.possible && clusters.IsSegment(name) {
		return nil
	}
	return apierrors.NewNotFound(n.resource, name)
}

// Get implements metadata.ResourceInterface.
func (n namedResource) Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	if err := n.check(name); err != nil {
		return nil, err
	}
	return n.ResourceInterface.Get(ctx, name, opts, subresources...)
}

// Delete implements metadata.ResourceInterface.
func (n namedResource) Delete(ctx context.Context, name string, opts metav1.DeleteOptions, subresources ...string) error {
	if err := n.check(name); err != nil {
		return err
	}
	return n.ResourceInterface.Delete(ctx, name, opts, subresources...)
}

// Patch implements metadata.ResourceInterface.
func (n namedResource) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string,
) (*metav1.PartialObjectMetadata, error) {
	if err := n.check(name); err != nil {
		return nil, err
	}
	return n.ResourceInterface.Patch(ctx, name, kind, data, opts, subresources...)
}
