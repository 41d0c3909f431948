// Package coordination serves coordination.k8s.io: leases (v1) and lease candidates (v1beta1).
package coordination

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// AddToScheme registers the served types and their selectable fields.
func AddToScheme(scheme *runtime.Scheme) error {
	resource.AddSelf(scheme, coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	resource.AddSelf(scheme, coordinationv1beta1.SchemeGroupVersion, &coordinationv1beta1.LeaseCandidate{}, &coordinationv1beta1.LeaseCandidateList{})
	if err := resource.AddFieldLabels(scheme, coordinationv1.SchemeGroupVersion.WithKind("Lease")); err != nil {
		return fmt.Errorf("field labels of Lease: %w", err)
	}
	if err := resource.AddFieldLabels(scheme, coordinationv1beta1.SchemeGroupVersion.WithKind("LeaseCandidate")); err != nil {
		return fmt.Errorf("field labels of LeaseCandidate: %w", err)
	}
	return nil
}

// Storage returns what is served, by version.
func Storage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (map[string]map[string]rest.Storage, error) {
	l, err := leases.Store(typer, getter)
	if err != nil {
		return nil, err
	}
	c, err := leaseCandidates.Store(typer, getter)
	if err != nil {
		return nil, err
	}
	return map[string]map[string]rest.Storage{"v1": {"leases": l}, "v1beta1": {"leasecandidates": c}}, nil
}
