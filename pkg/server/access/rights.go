package access

import (
	"context"
	"errors"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/regent-project/regent/pkg/clusters"
)

// Rights returns the rules that a user has in a namespace of a logical cluster, or in the whole cluster if namespace is empty, by a
// policy. missing are roles that are bound and do not exist.
func Rights(policy Policy, cluster logicalcluster.Name, who user.Info, namespace string) (rules []rbacv1.PolicyRule, missing []error) {
	view{Policy: policy, cluster: cluster}.visit(in(cluster, who), namespace, func(rule held, err error) bool {
		if err != nil {
			missing = append(missing, err)
			return true
		}
		rules = append(rules, *rule.PolicyRule)
		return true
	})
	return rules, missing
}

// exceeding returns what of the granted rules a user does not have.
func exceeding(policy Policy, cluster logicalcluster.Name, who user.Info, namespace string, granted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	own, _ := Rights(policy, cluster, who, namespace)
	if covered, lacking := validation.Covers(own, granted); !covered {
		return lacking
	}
	return nil
}

// Rights returns the rules that a user has in a namespace of the context's logical cluster, and why these may not be all. Of members of
// system:masters, who need no rules, it returns those of cluster-admin.
func (a *Authorizer) Rights(ctx context.Context, who user.Info, namespace string) (rules []rbacv1.PolicyRule, incomplete error) {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return builtIn.roles[AdminRole].Rules, nil
	}
	cluster, ok := clusters.From(ctx)
	if _, isLimited := limited(who); !ok || isLimited || clusters.IsSystem(cluster) || cluster == clusters.Wildcard {
		return nil, nil
	}
	rules, missing := Rights(a.Policy, cluster, who, namespace)
	return rules, errors.Join(missing...)
}
