package admission

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Owners allows only users who may delete an object to change its owners: garbage collection deletes what has an owner that does not exist.
// Whoever creates an object may give it any owners, as with Kubernetes' plugin OwnerReferencesPermissionEnforcement.
type Owners struct {
	// Authorizer decides about the verb delete.
	Authorizer authorizer.Authorizer
}

// Handles implements admission.Interface.
func (o *Owners) Handles(op admission.Operation) bool { return op == admission.Update }

// Validate implements admission.ValidationInterface.
func (o *Owners) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if isMaster(a.GetUserInfo()) || equality.Semantic.DeepEqual(ownersOf(a.GetObject()), ownersOf(a.GetOldObject())) {
		return nil
	}
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

// ownersOf returns nothing for an object without metadata.
func ownersOf(obj any) []metav1.OwnerReference {
	if of, err := meta.Accessor(obj); err == nil {
		return of.GetOwnerReferences()
	}
	return nil
}

var _ admission.ValidationInterface = (*Owners)(nil)
