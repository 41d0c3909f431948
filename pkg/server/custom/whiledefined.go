package custom

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	serverstorage "github.com/regent-project/regent/pkg/server/storage"
)

// whileDefined makes a write that may create an object. It creates it only while the definition is the one that the
// request was admitted by: the transaction compares its revision. So no object is created once the deletion of a
// definition has begun, on whichever replica, and whatever that has heard.
//
// If the definition has changed in what objects do not depend on, such as its labels, the write is tried again.
func whileDefined(ctx context.Context, write func(context.Context) error) error {
	d := From(ctx)
	if d == nil || d.again == nil {
		return write(ctx)
	}
	of := schema.GroupResource{Group: d.spec.Group, Resource: d.names.Plural}
	for now := d; ; {
		err := write(serverstorage.WithCondition(ctx, now.when))
		if !errors.Is(err, serverstorage.ErrConditionUnmet) {
			return err
		}
		was := now.when
		if now, err = d.again(ctx); err != nil {
			return err
		}
		switch {
		case now == nil || now.Terminating:
			return apierrors.NewForbidden(of, "", errTerminating)
		case now.Content != d.Content || now.when == was:
			return apierrors.NewServerTimeout(of, "create", 1)
		}
	}
}

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
