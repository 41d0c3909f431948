package admission

import (
	"context"
	"fmt"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// Groups refuses CustomResourceDefinitions and APIResourceSchemas in API groups that the server itself has. Nobody
// would be served what they define.
type Groups struct {
	// BuiltIn reports whether the server has a group.
	BuiltIn func(group string) bool
}

// Handles implements admission.Interface. The group of a definition never changes.
func (g *Groups) Handles(op admission.Operation) bool { return op == admission.Create }

// Validate implements admission.ValidationInterface.
func (g *Groups) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	var group string
	switch d := a.GetObject().(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		group = d.Spec.Group
	case *apisv1alpha1.APIResourceSchema:
		group = d.Spec.Group
	default:
		return nil
	}
	if a.GetSubresource() != "" || !g.BuiltIn(group) {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{field.Invalid(
		field.NewPath("spec", "group"), group, fmt.Sprintf("the server has resources of its own in group %s: choose another group, below a domain that is yours", group),
	)})
}

var _ admission.ValidationInterface = (*Groups)(nil)
