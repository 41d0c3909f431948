package kcpcore

import (
	"fmt"
	"regexp"
	"slices"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var phases = []corev1alpha1.LogicalClusterPhaseType{
	corev1alpha1.LogicalClusterPhaseScheduling,
	corev1alpha1.LogicalClusterPhaseInitializing,
	corev1alpha1.LogicalClusterPhaseReady,
	corev1alpha1.LogicalClusterPhaseUnavailable,
	corev1alpha1.LogicalClusterPhaseDeleting,
}

var conditionStatuses = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// controllerName matches the names of initializers and terminators: the path of a workspace type, or a name that begins
// with "system:".
var controllerName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?)|system:.+)$`)

// SetPhaseDefault sets the first phase of a workspace or logical cluster that has none.
func SetPhaseDefault(phase *corev1alpha1.LogicalClusterPhaseType) {
	if *phase == "" {
		*phase = corev1alpha1.LogicalClusterPhaseScheduling
	}
}

// ValidatePhase returns an error for an unknown phase.
func ValidatePhase(phase corev1alpha1.LogicalClusterPhaseType, path *field.Path) field.ErrorList {
	if slices.Contains(phases, phase) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, phase, phases)}
}

// ValidateConditions checks that each condition has a type and a valid status, and that no type occurs twice.
func ValidateConditions(conditions conditionsv1alpha1.Conditions, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[conditionsv1alpha1.ConditionType]bool{}
	for i, c := range conditions {
		errs = append(errs, Require(string(c.Type), path.Index(i).Child("type"))...)
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("type"), c.Type))
		}
		seen[c.Type] = true
		if !slices.Contains(conditionStatuses, c.Status) {
			errs = append(errs, field.NotSupported(path.Index(i).Child("status"), c.Status, conditionStatuses))
		}
	}
	return errs
}

// ValidateNames checks the names of initializers or terminators.
func ValidateNames[T ~string](names []T, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		if !controllerName.MatchString(string(name)) {
			errs = append(errs, field.Invalid(path.Index(i), name, fmt.Sprintf("must match %s", controllerName)))
		}
	}
	return errs
}

// Require returns an error for an empty value.
func Require(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}
