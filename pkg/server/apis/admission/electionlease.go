package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
)

// ElectionLease validates updates of one of the shard's own Leases, whoever makes them. Fencing relies on terms that
// never come back: a new holder must raise the epoch (spec.leaseTransitions), and the epoch must never fall. An edit
// that restores an old holder and epoch would make that term's token valid again. Taking the Lease away, clearing it
// and deleting it stay allowed.
type ElectionLease struct {
	Cluster   logicalcluster.Name
	Namespace string
	// Names are those of the elections. The Leases of an election's ranges have a number behind it.
	Names []string
}

// Handles implements admission.Interface.
func (*ElectionLease) Handles(op admission.Operation) bool { return op == admission.Update }

// Validate implements admission.ValidationInterface.
func (l *ElectionLease) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != coordinationv1.Resource("leases") || a.GetNamespace() != l.Namespace || !l.has(a.GetName()) {
		return nil
	}
	if cluster, _ := clusters.From(ctx); cluster != l.Cluster {
		return nil
	}
	lease, ok := a.GetObject().(*coordinationv1.Lease)
	old, was := a.GetOldObject().(*coordinationv1.Lease)
	if !ok || !was {
		return apierrors.NewInternalError(fmt.Errorf("cannot compare a %T with a %T", a.GetObject(), a.GetOldObject()))
	}
	if errs := validateSuccession(lease.Spec, old.Spec); len(errs) > 0 {
		return apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), a.GetName(), errs)
	}
	return nil
}

// has reports whether a Lease is one of an election.
func (l *ElectionLease) has(name string) bool {
	return slices.ContainsFunc(l.Names, func(election string) bool {
		index, isRange := strings.CutPrefix(name, election+"-")
		_, err := strconv.ParseUint(index, 10, 16)
		return name == election || isRange && err == nil
	})
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

var _ admission.ValidationInterface = (*ElectionLease)(nil)
