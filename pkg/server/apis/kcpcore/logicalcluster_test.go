package kcpcore

import (
	"strings"
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestOnlyAnOrphanGetsAnotherOwner(t *testing.T) {
	owned := func(by string, status corev1.ConditionStatus) logicalCluster {
		lc := &corev1alpha1.LogicalCluster{}
		if by != "" {
			name, uid, _ := strings.Cut(by, "/")
			lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{APIVersion: "a/b", Resource: "workspaces", Cluster: "root", Name: name, UID: types.UID(uid)}
		}
		if status != "" {
			lc.Status.Conditions = conditionsv1alpha1.Conditions{{Type: clusters.ConditionOrphaned, Status: status}}
		}
		return lc
	}
	for name, tc := range map[string]struct {
		old, now logicalCluster
		allowed  bool
	}{
		"as it was":                     {owned("a/1", ""), owned("a/1", ""), true},
		"an orphan, by a new one":       {owned("a/1", "True"), owned("a/2", "True"), true},
		"an orphan, by another name":    {owned("a/1", "True"), owned("b/2", "True"), false},
		"an orphan, by nobody":          {owned("a/1", "True"), owned("", "True"), false},
		"an orphan no longer":           {owned("a/1", "False"), owned("a/2", "False"), false},
		"never an orphan":               {owned("a/1", ""), owned("a/2", ""), false},
		"an orphan from this write on":  {owned("a/1", ""), owned("a/2", "True"), false},
		"nobody's, marked all the same": {owned("", "True"), owned("a/1", "True"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if errs := validateLogicalClusterUpdate(tc.now, tc.old); (len(errs) == 0) != tc.allowed {
				t.Errorf("%v, want allowed: %t", errs, tc.allowed)
			}
		})
	}
}
