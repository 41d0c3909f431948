package aggregation

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// most is how many bytes of rules an aggregated role takes in, those that it has already included. A role with more
// could not be stored, and whoever has written it would have the leader compare what fills their whole quota, for ever.
const most = 256 << 10

// filled returns a copy of an aggregated role with the rules of those that it selects among the roles of its cluster,
// or nil if it has them already. They are in the order of the roles' names, and none comes twice, so that a second look
// changes nothing. What is beyond most is left out.
func filled(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) *rbacv1.ClusterRole {
	rules := distinct(selected(role, all))
	if equality.Semantic.DeepEqual(role.Rules, rules) {
		return nil
	}
	out := role.DeepCopy()
	out.Rules = rules
	return out
}

// selected returns the roles that an aggregated role selects, by their names.
func selected(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) (out []*rbacv1.ClusterRole) {
	var selectors []labels.Selector
	for n := range role.AggregationRule.ClusterRoleSelectors {
		// validation refuses others
		if selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[n]); err == nil {
			selectors = append(selectors, selector)
		}
	}
	for _, of := range all {
		if of.Name != role.Name && slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(of.Labels)) }) {
			out = append(out, of)
		}
	}
	slices.SortFunc(out, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// distinct returns copies of the rules of roles, each rule once.
func distinct(roles []*rbacv1.ClusterRole) (rules []rbacv1.PolicyRule) {
	has, looked := map[string]bool{}, 0
	for _, of := range roles {
		for n := range of.Rules {
			rule := &of.Rules[n]
			if looked += rule.Size(); looked > most {
				return rules
			}
			data, err := rule.Marshal()
			if err != nil {
				continue // cannot be: it was read
			}
			if key := string(data); !has[key] {
				has[key] = true
				rules = append(rules, *rule.DeepCopy())
			}
		}
	}
	return rules
}
