package custom

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// Terminating is an admission plugin that refuses new objects of a definition that is being deleted. Upstream's handler
// does the same, but does not know: it serves definitions of all logical clusters that say the same, and never one that
// is being deleted.
type Terminating struct{}

// Handles implements admission.Interface.
func (Terminating) Handles(operation admission.Operation) bool { return operation == admission.Create }

// Admit implements admission.MutationInterface.
func (Terminating) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if d := From(ctx); d != nil && d.Terminating && a.GetSubresource() == "" {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errTerminating)
	}
	return nil
}

var errTerminating = errors.New("its definition is being deleted: make it once there is a definition again")

var _ admission.MutationInterface = Terminating{}
