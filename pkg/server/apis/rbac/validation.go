package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules below are those that Kubernetes documents for the group.

func validateRole(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }

// maxSelectorTerms is how many selectors, labels and expressions an aggregation rule may have together. The leader
// compares them with all roles of the cluster whenever one of these changes.
const maxSelectorTerms = 30

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	selectors := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	terms := 0
	for n := range r.AggregationRule.ClusterRoleSelectors {
		s := &r.AggregationRule.ClusterRoleSelectors[n]
		terms += 1 + len(s.MatchLabels) + len(s.MatchExpressions)
	}
	if terms > maxSelectorTerms {
		return append(errs, field.TooMany(selectors, terms, maxSelectorTerms))
	}
	for n := range r.AggregationRule.ClusterRoleSelectors {
		selector := &r.AggregationRule.ClusterRoleSelectors[n]
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, selectors.Index(n))...)
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for n := range rules {
		errs = append(errs, validateRule(&rules[n], namespaced, field.NewPath("rules").Index(n))...)
	}
	return errs
}

func validateRule(rule *rbacv1.PolicyRule, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(rule.NonResourceURLs) > 0 {
		if namespaced {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func validateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, "Role", "ClusterRole"), validateSubjects(b.Subjects, true)...)
}

func validateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(validateRoleRef(b.RoleRef, "ClusterRole"), validateSubjects(b.Subjects, false)...)
}

func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	return append(errs, validateName(ref.Name, at.Child("name"), pathSegment)...)
}

func validateName(name string, at *field.Path, rule validation.ValidateNameFunc) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for _, msg := range rule(name, false) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	return errs
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for n, s := range subjects {
		errs = append(errs, validateSubject(s, namespaced, field.NewPath("subjects").Index(n))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	group := func(want string) field.ErrorList {
		if s.APIGroup != want {
			return field.ErrorList{field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{want})}
		}
		return nil
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		errs := append(validateName(s.Name, at.Child("name"), validation.ValidateServiceAccountName), group("")...)
		if s.Namespace == "" && !namespaced {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
		return errs
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs := group(rbacv1.GroupName)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		return errs
	}
	return field.ErrorList{field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind})}
}

// validateSameRole keeps a binding at its role: who may change subjects may not hand out another role.
func validateSameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if !equality.Semantic.DeepEqual(ref, old) {
		return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
	}
	return nil
}

// pathSegment accepts names that can be a part of a URL: unlike other names, those of roles and bindings may have
// colons.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
