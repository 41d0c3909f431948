package coordination

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var leases = resource.Definition[*coordinationv1.Lease]{
	GVR:            coordinationv1.SchemeGroupVersion.WithResource("leases"),
	Namespaced:     true,
	List:           &coordinationv1.LeaseList{},
	Stored:         resource.Stored[*coordinationv1.Lease]{Term: fence.OfLease},
	Name:           validation.NameIsDNSSubdomain,
	CreateOnUpdate: true,
	Validate: func(l *coordinationv1.Lease) field.ErrorList {
		return validateLeaseSpec(&l.Spec, field.NewPath("spec"))
	},
	Columns: []resource.Column[*coordinationv1.Lease]{
		resource.Name[*coordinationv1.Lease](),
		{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], Cell: func(l *coordinationv1.Lease) any {
			if l.Spec.HolderIdentity == nil {
				return ""
			}
			return *l.Spec.HolderIdentity
		}},
		resource.Age[*coordinationv1.Lease](),
	},
}

func validateLeaseSpec(spec *coordinationv1.LeaseSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.LeaseDurationSeconds != nil && *spec.LeaseDurationSeconds <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *spec.LeaseDurationSeconds, "must be greater than 0"))
	}
	if spec.LeaseTransitions != nil && *spec.LeaseTransitions < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *spec.LeaseTransitions, "must be greater than or equal to 0"))
	}
	if spec.Strategy != nil {
		errs = append(errs, validateStrategy(*spec.Strategy, path.Child("strategy"))...)
	}
	if spec.PreferredHolder != nil && *spec.PreferredHolder != "" && (spec.Strategy == nil || *spec.Strategy == "") {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified when `strategy` is defined"))
	}
	return errs
}

// validateStrategy accepts Kubernetes' own strategy, and names in a domain that is not Kubernetes'.
func validateStrategy(strategy coordinationv1.CoordinatedLeaseStrategy, path *field.Path) field.ErrorList {
	own := []coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion}
	domain, name, qualified := strings.Cut(string(strategy), "/")
	if !qualified {
		if slices.Contains(own, strategy) {
			return nil
		}
		return field.ErrorList{field.NotSupported(path, strategy, own)}
	}
	var errs field.ErrorList
	for _, msg := range append(utilvalidation.IsDNS1123Subdomain(domain), utilvalidation.IsCIdentifier(name)...) {
		errs = append(errs, field.Invalid(path, strategy, msg))
	}
	if domain == "kubernetes.io" || domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
		errs = append(errs, field.Invalid(path, strategy, "the domain is reserved for Kubernetes"))
	}
	return errs
}
