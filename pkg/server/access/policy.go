// Package access says who may do what in a logical cluster, by Kubernetes' RBAC: the roles and bindings of that
// cluster, and a policy that is built into all clusters and stored in none (I14).
package access

import (
	"fmt"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Policy has the stored roles and bindings of logical clusters. Callers must not change what it returns.
type Policy interface {
	ClusterRole(cluster logicalcluster.Name, name string) (*rbacv1.ClusterRole, bool)
	Role(cluster logicalcluster.Name, namespace, name string) (*rbacv1.Role, bool)
	// ClusterRoleBindings and RoleBindings return the bindings that have one of the subjects. They may return one
	// twice, and others.
	ClusterRoleBindings(cluster logicalcluster.Name, of []Subject) []*rbacv1.ClusterRoleBinding
	RoleBindings(cluster logicalcluster.Name, namespace string, of []Subject) []*rbacv1.RoleBinding
	// AggregatedTo returns the ClusterRoles that have the label rbac.authorization.k8s.io/aggregate-to-<role> with
	// the value "true".
	AggregatedTo(cluster logicalcluster.Name, role string) []*rbacv1.ClusterRole
}

// Subject is a user, a group, or a service account, as bindings name it.
type Subject struct {
	// Kind is one of rbacv1.UserKind, GroupKind and ServiceAccountKind.
	Kind string
	// Name of a service account is that of controllers.ServiceAccountName.
	Name string
}

// The kinds of roles that bindings refer to.
const (
	kindRole        = "Role"
	kindClusterRole = "ClusterRole"
)

// view is what one logical cluster says.
type view struct {
	Policy
	cluster logicalcluster.Name
	// stored says that only stored bindings count, and not the built-in ones.
	stored bool
}

// rulesOf returns the rules of a role, in parts that are not copied: the role's own, and those of the cluster's own
// ClusterRoles that say by their label that they belong to it. namespace is that of the binding, and empty for a
// ClusterRoleBinding. The names of built-in roles are reserved, so a stored role never hides one.
func (v view) rulesOf(ref *rbacv1.RoleRef, namespace string) ([][]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case kindClusterRole:
		if role, ok := builtIn.roles[ref.Name]; ok {
			return v.withAggregated(role), nil
		}
		if role, ok := v.ClusterRole(v.cluster, ref.Name); ok {
			return [][]rbacv1.PolicyRule{role.Rules}, nil
		}
	case kindRole:
		if role, ok := v.Role(v.cluster, namespace, ref.Name); ok && namespace != "" {
			return [][]rbacv1.PolicyRule{role.Rules}, nil
		}
	}
	return nil, fmt.Errorf("%s %q not found", ref.Kind, ref.Name)
}

func (v view) withAggregated(role *rbacv1.ClusterRole) [][]rbacv1.PolicyRule {
	parts := [][]rbacv1.PolicyRule{role.Rules}
	for _, to := range aggregates[role.Name] {
		for _, part := range v.AggregatedTo(v.cluster, to) {
			parts = append(parts, part.Rules)
		}
	}
	return parts
}

// ownRule is a rule that a user has.
type ownRule struct {
	*rbacv1.PolicyRule
	// everywhere says that a ClusterRoleBinding gives it. What a RoleBinding gives is good for resources of its
	// namespace only, whatever the rule says of non-resource URLs.
	everywhere bool
}

// visit calls do with each rule that a user has in a namespace, or in the whole cluster if namespace is empty, until do
// returns false. It calls do with an error for a role that does not exist. Each role is visited once, however many
// bindings name it: otherwise whoever may write bindings could make one request cost as much as they like.
func (v view) visit(who *identity, namespace string, do func(ownRule, error) bool) {
	var visited roleSet
	// each visits the role of a binding. Whether the role is new is asked first, because a user may have a hundred
	// bindings to one role.
	each := func(ref *rbacv1.RoleRef, subjects []rbacv1.Subject, namespace string) bool {
		if visited.has(ref) || !who.isOneOf(subjects, namespace) {
			return true
		}
		visited.add(ref)
		parts, err := v.rulesOf(ref, namespace)
		if err != nil {
			return do(ownRule{}, err)
		}
		for _, rules := range parts {
			for i := range rules {
				if !do(ownRule{&rules[i], namespace == ""}, nil) {
					return false
				}
			}
		}
		return true
	}
	if !v.stored {
		for _, b := range builtIn.bindings {
			if !each(&b.RoleRef, b.Subjects, "") {
				return
			}
		}
	}
	subjects := who.subjects()
	for _, b := range v.ClusterRoleBindings(v.cluster, subjects) {
		if !each(&b.RoleRef, b.Subjects, "") {
			return
		}
	}
	if namespace == "" {
		return
	}
	for _, b := range v.RoleBindings(v.cluster, namespace, subjects) {
		if !each(&b.RoleRef, b.Subjects, namespace) {
			return
		}
	}
}

// roleSet is a set of roles, by kind and name. A few, as most users have, need no map.
type roleSet struct {
	few  []roleName
	many map[roleName]bool
}

type roleName struct{ kind, name string }

// fewRoles is up to how many roles a search is cheaper than a map.
const fewRoles = 16

func (s *roleSet) has(ref *rbacv1.RoleRef) bool {
	role := roleName{ref.Kind, ref.Name}
	return s.many[role] || s.many == nil && slices.Contains(s.few, role)
}

// add adds a role that it does not have.
func (s *roleSet) add(ref *rbacv1.RoleRef) {
	role := roleName{ref.Kind, ref.Name}
	if s.many != nil {
		s.many[role] = true
		return
	}
	if s.few = append(s.few, role); len(s.few) > fewRoles {
		s.many = make(map[roleName]bool, 2*fewRoles)
		for _, role := range s.few {
			s.many[role] = true
		}
	}
}
