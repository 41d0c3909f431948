package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/regent-project/regent/pkg/clusters"
)

// rightsOf returns the rules that a user has in a namespace of a logical cluster, or in the whole cluster if namespace
// is empty, by a policy. missing are roles that are bound and do not exist.
func rightsOf(policy Policy, cluster logicalcluster.Name, who user.Info, namespace string) (rules []rbacv1.PolicyRule, missing []error) {
	view{Policy: policy, cluster: cluster}.visit(in(cluster, who), namespace, func(rule ownRule, err error) bool {
		if err != nil {
			missing = append(missing, err)
			return true
		}
		rules = append(rules, *rule.PolicyRule)
		return true
	})
	return rules, missing
}

// errTooMuch refuses a comparison that would take too long.
var errTooMuch = errors.New("these are too many rules to compare with those that you have: grant fewer at a time, or have somebody do it who may " +
	"escalate roles, or bind them")

// maxComparisons bounds how many words of rules are compared, which takes about a second. What rules grant is the
// product of their verbs, groups, resources and names: one object of a megabyte can grant more than fits into memory.
const maxComparisons = 10_000_000

// exceeding returns what of the granted rules a user does not have, and errTooMuch if that takes too long to find out.
func exceeding(policy Policy, cluster logicalcluster.Name, who user.Info, namespace string, granted []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	own, _ := rightsOf(policy, cluster, who, namespace)
	if rightsIn(granted)*float64(1+words(own)) > maxComparisons {
		return nil, errTooMuch
	}
	if covered, lacking := validation.Covers(own, granted); !covered {
		return lacking, nil
	}
	return nil, nil
}

// rightsIn returns how many single rights rules grant. It may be more than an integer holds.
func rightsIn(rules []rbacv1.PolicyRule) (n float64) {
	for i := range rules {
		r := &rules[i]
		n += float64(len(r.APIGroups))*float64(len(r.Resources))*float64(len(r.Verbs))*float64(max(1, len(r.ResourceNames))) +
			float64(len(r.NonResourceURLs))*float64(len(r.Verbs))
	}
	return n
}

// words returns how many words rules have.
func words(rules []rbacv1.PolicyRule) (n int) {
	for i := range rules {
		r := &rules[i]
		n += 1 + len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs)
	}
	return n
}

// maxReviewed is how many rules users are shown of what they may do.
const maxReviewed = 10_000

// Rights returns the rules that a user has in a namespace of the context's logical cluster, and why these may not be
// all. Of members of system:masters, who need no rules, it returns those of cluster-admin.
func (a *Authorizer) Rights(ctx context.Context, who user.Info, namespace string) (rules []rbacv1.PolicyRule, incomplete error) {
	if isMaster(who) {
		return builtIn.roles[AdminRole].Rules, nil
	}
	cluster, ok := clusters.From(ctx)
	if _, isLimited := limited(who); !ok || isLimited || clusters.IsSystem(cluster) || cluster == clusters.Wildcard {
		return nil, nil
	}
	rules, missing := rightsOf(a.Policy, cluster, who, namespace)
	if len(rules) > maxReviewed {
		rules, missing = rules[:maxReviewed], append(missing, fmt.Errorf("these are %d of %d rules", maxReviewed, len(rules)))
	}
	return rules, joinFirst(missing)
}
