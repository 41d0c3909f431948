package server

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
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
