package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
)

// Names refuses to create objects whose names cannot be printed, or be part of a URL. Upstream's validation of roles
// and bindings takes them.
type Names struct{}

// Handles implements admission.Interface.
func (Names) Handles(op admission.Operation) bool { return op == admission.Create }

// Validate implements admission.ValidationInterface.
func (Names) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	of, err := meta.Accessor(a.GetObject())
	if err != nil || of.GetName() == "" || a.GetSubresource() != "" || clusters.IsObjectName(of.GetName()) {
		return nil //nolint:nilerr // it has no name
	}
	return apierrors.NewBadRequest(fmt.Sprintf("metadata.name %q cannot be used in URLs: leave out control characters, slashes and percent signs", of.GetName()))
}

var _ admission.ValidationInterface = Names{}
