package admission

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestATermOfTheElectionLeaseNeverComesBack(t *testing.T) {
	at := func(holder string, epoch int32) coordinationv1.LeaseSpec {
		return coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &epoch}
	}
	for name, c := range map[string]struct {
		old, new coordinationv1.LeaseSpec
		allowed  bool
	}{
		"renewed":                           {at("a", 3), at("a", 3), true},
		"released":                          {at("a", 3), at("", 3), true},
		"taken":                             {at("a", 3), at("b", 4), true},
		"taken by the same, in a new epoch": {at("a", 3), at("a", 4), true},
		"acquired":                          {at("", 3), at("b", 4), true},
		"an epoch skipped":                  {at("", 3), at("b", 9), true},
		"free, and stays so":                {at("", 3), at("", 3), true},
		"never held":                        {coordinationv1.LeaseSpec{}, at("a", 1), true},
		"cleared without an epoch":          {coordinationv1.LeaseSpec{}, coordinationv1.LeaseSpec{}, true},
		"taken in the same epoch":           {at("a", 3), at("b", 3), false},
		"brought back after a release":      {at("", 3), at("a", 3), false},
		"an older term":                     {at("b", 4), at("a", 3), false},
		"an older epoch of the holder":      {at("a", 4), at("a", 3), false},
		"free in an older epoch":            {at("a", 4), at("", 3), false},
		"the epoch wiped":                   {at("a", 4), coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}, false},
		"held without an epoch":             {coordinationv1.LeaseSpec{}, coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}, false},
	} {
		if errs := validateSuccession(c.new, c.old); (len(errs) == 0) != c.allowed {
			t.Errorf("%s: %v, want allowed: %t", name, errs, c.allowed)
		}
	}
}

// The rule is for the Leases of elections and of their ranges, and for updates.
func TestOnlyTheElectionLeaseIsHeldToTheRuleOfSuccession(t *testing.T) {
	rule := &ElectionLease{Cluster: clusters.SystemAdmin, Namespace: "kube-system", Names: []string{"l", "e"}}
	if rule.Handles(admission.Create) || rule.Handles(admission.Delete) || !rule.Handles(admission.Update) {
		t.Error("it is not about updates")
	}
	lease := func(holder string) runtime.Object {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: ptr.To[int32](3)}}
	}
	for name, c := range map[string]struct {
		cluster, namespace, name, resource string
		refused                            bool
	}{
		"the Lease":         {"system:admin", "kube-system", "l", "leases", true},
		"another election":  {"system:admin", "kube-system", "e", "leases", true},
		"of a range":        {"system:admin", "kube-system", "l-17", "leases", true},
		"another name":      {"system:admin", "kube-system", "m", "leases", false},
		"a longer name":     {"system:admin", "kube-system", "l-17-b", "leases", false},
		"another namespace": {"system:admin", "default", "l", "leases", false},
		"another cluster":   {"root", "kube-system", "l", "leases", false},
		"another resource":  {"system:admin", "kube-system", "l", "leasecandidates", false},
	} {
		attributes := admission.NewAttributesRecord(lease("b"), lease("a"), coordinationv1.SchemeGroupVersion.WithKind("Lease"), c.namespace, c.name,
			coordinationv1.SchemeGroupVersion.WithResource(c.resource), "", admission.Update, nil, false, nil)
		err := rule.Validate(clusters.With(t.Context(), logicalcluster.Name(c.cluster)), attributes, nil)
		if c.refused != apierrors.IsInvalid(err) || !c.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
