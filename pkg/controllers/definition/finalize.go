package definition

import (
	"context"
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/content"
)

// leaving reports whether a definition waits for its objects to be deleted.
func leaving(d definition) bool { return controllers.DefinitionLeaving(d) }

// finalize deletes the objects of a definition, and lets it go when none is left. Until then its status says what it
// waits for, and each object that changes queues the group.
//
// It reads the definition from the server first: the one in a stale cache may have gone, and the objects of another one
// of its name must not be deleted. Once the server has shown that this one is being deleted, no object can be created:
// see custom.whileDefined.
func (c *controller) finalize(ctx context.Context, cached definition) error {
	d, err := c.clients.Definitions.Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (d.UID != cached.UID || !leaving(d)) {
		return nil
	}
	if err != nil {
		return err
	}
	out := d.DeepCopy()
	if resource, ok := stored(d); ok {
		remaining, failure := content.Purge(ctx, c.metadata, []controllers.Resource{resource}, metav1.NamespaceAll)
		if failure != nil || !remaining.Empty() {
			return errors.Join(failure, c.report(ctx, out, remaining, failure))
		}
	}
	apihelpers.CRDRemoveFinalizer(out, apiextensionsv1.CustomResourceCleanupFinalizer)
	_, err = c.clients.Definitions.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name})
	return unlessChanged(err)
}

// report says in a definition's status what its deletion waits for, if it does not say so yet.
func (c *controller) report(ctx context.Context, out definition, remaining content.Remaining, failure error) error {
	says := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionInProgress",
		Message: "Some objects remain: " + remaining.DescribeObjects(),
	}
	if held := remaining.DescribeFinalizers(); held != "" {
		says.Message += ", which wait for finalizers: " + held
	}
	if failure != nil {
		says.Reason, says.Message = "InstanceDeletionFailed", "Cannot delete the objects: "+failure.Error()
	}
	if old := apihelpers.FindCRDCondition(out, says.Type); old != nil && old.Reason == says.Reason && old.Message == says.Message {
		return nil
	}
	apihelpers.SetCRDCondition(out, says)
	_, err := c.clients.Definitions.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name})
	return unlessChanged(err)
}

// stored returns the resource as which the objects of a definition are stored. It is not ok if there never was one.
func stored(d definition) (controllers.Resource, bool) {
	names := d.Status.AcceptedNames
	for _, v := range d.Spec.Versions {
		if v.Storage && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			return controllers.Resource{
				GVR:  schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: names.Plural},
				Kind: names.Kind, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
			}, true
		}
	}
	return controllers.Resource{}, false
}
