package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
)

// Owners allows only users who may delete an object to change its owners: garbage collection deletes what has an owner
// that does not exist. Whoever creates an object may give it any owners, as with Kubernetes' plugin
// OwnerReferencesPermissionEnforcement.
//
// An object that blocks the deletion of its owner is like a finalizer of the owner. So who lets one block, on creation
// too, needs the right to update the owner's subresource finalizers, as with that plugin.
type Owners struct {
	// Authorizer decides about the verbs delete and update.
	Authorizer authorizer.Authorizer
	// Resource returns the resource of a kind in the logical cluster of the context. It is not ok for kinds that
	// are not served there, whose owners nobody deletes.
	Resource func(context.Context, schema.GroupKind) (resource schema.GroupVersionResource, namespaced, ok bool)
}

// Handles implements admission.Interface.
func (o *Owners) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (o *Owners) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	owners, old := ownersOf(a.GetObject()), ownersOf(a.GetOldObject())
	if isMaster(a.GetUserInfo()) || equality.Semantic.DeepEqual(owners, old) {
		return nil
	}
	if a.GetOperation() == admission.Update {
		if err := o.mayDelete(ctx, a); err != nil {
			return err
		}
	}
	for _, ref := range owners {
		if !clusters.IsSegment(ref.Name) {
			return apierrors.NewBadRequest(fmt.Sprintf("metadata.ownerReferences: no object has the name %q: give the name of the owner", ref.Name))
		}
		if ptr.Deref(ref.BlockOwnerDeletion, false) && !slices.ContainsFunc(old, func(was metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(ref, was) }) {
			if err := o.mayBlock(ctx, a, ref); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Owners) mayDelete(ctx context.Context, a admission.Attributes) error {
	decision, _, err := o.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "delete", Namespace: a.GetNamespace(), Name: a.GetName(), ResourceRequest: true,
		APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version, Resource: a.GetResource().Resource,
	})
	switch {
	case err != nil:
		return admission.NewForbidden(a, fmt.Errorf("cannot tell whether you may delete the object, which is needed to change its owners: %w", err))
	case decision != authorizer.DecisionAllow:
		return admission.NewForbidden(a, errors.New("metadata.ownerReferences: only who may delete an object may change its owners: leave them as they are"))
	}
	return nil
}

// mayBlock returns an error unless the writer may have an object block the deletion of an owner.
func (o *Owners) mayBlock(ctx context.Context, a admission.Attributes, ref metav1.OwnerReference) error {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil //nolint:nilerr // validation refuses it
	}
	of, namespaced, ok := o.Resource(ctx, gv.WithKind(ref.Kind).GroupKind())
	if !ok {
		return nil
	}
	asked := authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "update", Name: ref.Name, ResourceRequest: true,
		APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource, Subresource: "finalizers",
	}
	if namespaced {
		asked.Namespace = a.GetNamespace()
	}
	decision, _, err := o.Authorizer.Authorize(ctx, asked)
	switch {
	case err != nil:
		return admission.NewForbidden(a, fmt.Errorf("cannot tell whether the object may block the deletion of %s %q: %w", ref.Kind, ref.Name, err))
	case decision != authorizer.DecisionAllow:
		return admission.NewForbidden(a, fmt.Errorf("metadata.ownerReferences: blockOwnerDeletion of %s %q needs the right to update %s/finalizers: leave it out, or ask for that right",
			ref.Kind, ref.Name, of.GroupResource()))
	}
	return nil
}

// ownersOf returns nothing for an object without metadata.
func ownersOf(obj any) []metav1.OwnerReference {
	if of, err := meta.Accessor(obj); err == nil {
		return of.GetOwnerReferences()
	}
	return nil
}

var _ admission.ValidationInterface = (*Owners)(nil)
