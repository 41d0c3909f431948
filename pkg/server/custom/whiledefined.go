package custom

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
