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

// What is copied when a phase begins does nothing later. What is stored can be written again.
func TestWhatComesTooLateIsRefused(t *testing.T) {
	in := func(phase corev1alpha1.LogicalClusterPhaseType, change func(*corev1alpha1.LogicalClusterSpec)) logicalCluster {
		lc := &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: phase}}
		change(&lc.Spec)
		return lc
	}
	nothing := func(*corev1alpha1.LogicalClusterSpec) {}
	initializers := func(s *corev1alpha1.LogicalClusterSpec) {
		s.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:i"}
	}
	terminators := func(s *corev1alpha1.LogicalClusterSpec) {
		s.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:t"}
	}
	for _, c := range []struct {
		phase    corev1alpha1.LogicalClusterPhaseType
		old, now func(*corev1alpha1.LogicalClusterSpec)
		refused  string
	}{
		{corev1alpha1.LogicalClusterPhaseScheduling, nothing, initializers, ""},
		{corev1alpha1.LogicalClusterPhaseInitializing, nothing, initializers, "spec.initializers"},
		{corev1alpha1.LogicalClusterPhaseReady, nothing, initializers, "spec.initializers"},
		{corev1alpha1.LogicalClusterPhaseReady, initializers, nothing, "spec.initializers"},
		{corev1alpha1.LogicalClusterPhaseReady, initializers, initializers, ""},
		{corev1alpha1.LogicalClusterPhaseReady, nothing, terminators, ""},
		{corev1alpha1.LogicalClusterPhaseDeleting, nothing, terminators, "spec.terminators"},
		{corev1alpha1.LogicalClusterPhaseDeleting, terminators, terminators, ""},
	} {
		errs := validateLogicalClusterUpdate(in(c.phase, c.now), in(c.phase, c.old))
		if c.refused == "" && len(errs) > 0 || c.refused != "" && (len(errs) != 1 || errs[0].Field != c.refused) {
			t.Errorf("%s: %v, want %q", c.phase, errs, c.refused)
		}
	}
}
