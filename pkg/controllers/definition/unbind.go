package definition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/content"
)

// unbind deletes the objects of what a binding has bound, and lets the binding go when none is left. It reads the
// binding from the server first, as finalize does: once the server has shown that it is being deleted, no object can be
// created.
func (c *controller) unbind(ctx context.Context, cached binding) error {
	b, err := c.clients.Bindings.Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (b.UID != cached.UID || b.DeletionTimestamp == nil || !slices.Contains(b.Finalizers, clusters.BindingFinalizer)) {
		return nil
	}
	if err != nil {
		return err
	}
	var resources []controllers.Resource
	for n := range b.Status.BoundResources {
		r := &b.Status.BoundResources[n]
		s, ok := c.informers.BoundSchema(r)
		if !ok {
			return fmt.Errorf("the cache has not got schema %s of binding %s yet", r.Schema.Name, b.Name)
		}
		resources = append(resources, controllers.ResourceOfSchema(s))
	}
	remaining, failure := content.Purge(ctx, c.metadata, resources, metav1.NamespaceAll)
	if failure != nil || !remaining.Empty() {
		return errors.Join(failure, c.reportUnbinding(ctx, b, remaining, failure))
	}
	b.Finalizers = slices.DeleteFunc(b.Finalizers, func(f string) bool { return f == clusters.BindingFinalizer })
	_, err = c.clients.Bindings.Update(ctx, b, metav1.UpdateOptions{FieldManager: name})
	return unlessChanged(err)
}

// reportUnbinding says in a binding's status what its deletion waits for, if it does not say so yet.
func (c *controller) reportUnbinding(ctx context.Context, b binding, remaining content.Remaining, failure error) error {
	out := b.DeepCopy()
	reason, message := "SomeResourcesRemain", "Some objects remain: "+remaining.DescribeObjects()
	if held := remaining.DescribeFinalizers(); held != "" {
		message += ", which wait for finalizers: " + held
	}
	if failure != nil {
		reason, message = "ResourceDeletionFailed", "Cannot delete the objects: "+failure.Error()
	}
	conditions.MarkFalse(out, apisv1alpha2.BindingResourceDeleteSuccess, reason, conditionsv1alpha1.ConditionSeverityError, "%s", message)
	if equality.Semantic.DeepEqual(out.Status, b.Status) {
		return nil
	}
	_, err := c.clients.Bindings.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name})
	return unlessChanged(err)
}
