package aggregation

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// filled returns a copy of an aggregated role with the rules of those that it selects among the roles of its cluster, or nil if it has
// them already. They are in the order of the roles' names, and none comes twice, so that a second look changes nothing.
func filled(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) *rbacv1.ClusterRole {
	var rules []rbacv1.PolicyRule
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	for _, of := range sorted {
		if of.Name == role.Name || !selects(role.AggregationRule, of) {
			continue
		}
		for _, rule := range of.Rules {
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
				rules = append(rules, *rule.DeepCopy())
			}
		}
	}
	if equality.Semantic.DeepEqual(role.Rules, rules) {
		return nil
	}
	out := role.DeepCopy()
	out.Rules = rules
	return out
}

func selects(by *rbacv1.AggregationRule, role *rbacv1.ClusterRole) bool {
	return slices.ContainsFunc(by.ClusterRoleSelectors, func(s metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		return err == nil && selector.Matches(labels.Set(role.Labels)) // validation refuses selectors that cannot be read
	})
}
