package server

import (
	"context"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
)

// electionLease holds writes of the shard's own Lease, by whomever, to what fencing rests on: a term never comes back.
// Whoever becomes the holder begins a new epoch, and epochs never fall while the Lease lives. Otherwise an edit that puts
// an old holder and epoch back would make that term's token good again. To overwrite, to clear or to delete it is as
// allowed as ever.
type electionLease struct {
	cluster         logicalcluster.Name
	namespace, name string
}

// Handles implements admission.Interface.
func (*electionLease) Handles(op admission.Operation) bool { return op == admission.Update }

// Validate implements admission.ValidationInterface.
func (l *electionLease) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != coordinationv1.Resource("leases") || a.GetNamespace() != l.namespace || a.GetName() != l.name {
		return nil
	}
	if cluster, _ := clusters.From(ctx); cluster != l.cluster {
		return nil
	}
	lease, ok := a.GetObject().(*coordinationv1.Lease)
	old, was := a.GetOldObject().(*coordinationv1.Lease)
	if !ok || !was {
		return apierrors.NewInternalError(fmt.Errorf("cannot compare a %T with a %T", a.GetObject(), a.GetOldObject()))
	}
	if errs := validateSuccession(lease.Spec, old.Spec); len(errs) > 0 {
		return apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), l.name, errs)
	}
	return nil
}

func validateSuccession(spec, old coordinationv1.LeaseSpec) field.ErrorList {
	path := field.NewPath("spec", "leaseTransitions")
	holder, epoch, before := ptr.Deref(spec.HolderIdentity, ""), ptr.Deref(spec.LeaseTransitions, 0), ptr.Deref(old.LeaseTransitions, 0)
	switch {
	case epoch < before:
		return field.ErrorList{field.Invalid(path, epoch, "must not fall: it is the number of the term, and writes of older terms are refused by it")}
	case holder != "" && holder != ptr.Deref(old.HolderIdentity, "") && epoch == before:
		return field.ErrorList{field.Invalid(path, epoch, "must be raised together with a new spec.holderIdentity, which begins a new term")}
	default:
		return nil
	}
}

var _ admission.ValidationInterface = (*electionLease)(nil)
