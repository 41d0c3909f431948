package controllers

import (
	"cmp"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// ByAggregation is the index of Informers.ClusterRoles by the built-in roles to which they are aggregated. Its values
// are AggregationValue. ByAggregating is that of the roles with an aggregation rule. Its values are the names of their
// clusters.
const (
	ByAggregation = "aggregation"
	ByAggregating = "aggregating"
)

// BySubject is the index of Informers.RoleBindings and of ClusterRoleBindings by the users, groups and service accounts
// that they are about. Its values are SubjectValue.
const BySubject = "subject"

// SubjectValue returns the value of a subject of bindings in the index BySubject. namespace is that of the bindings,
// and empty for ClusterRoleBindings. Those of a service account have its namespace and name.
func SubjectValue(cluster logicalcluster.Name, namespace, kind, name string) string {
	return cluster.String() + "|" + namespace + "|" + kind + "|" + name
}

// ServiceAccountName returns the name of a service account for SubjectValue.
func ServiceAccountName(namespace, name string) string { return namespace + "/" + name }

func subjectValues(binding clusters.Object, subjects []rbacv1.Subject) (values []string) {
	key := clusters.KeyOf(binding)
	for _, s := range subjects {
		name := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			name = ServiceAccountName(cmp.Or(s.Namespace, key.Namespace), name)
		}
		values = append(values, SubjectValue(key.Cluster, key.Namespace, s.Kind, name))
	}
	return values
}

func roleBindingIndexers() map[string]func(*rbacv1.RoleBinding) []string {
	indexers := OwnerIndexers[*rbacv1.RoleBinding]()
	indexers[BySubject] = func(b *rbacv1.RoleBinding) []string { return subjectValues(b, b.Subjects) }
	return indexers
}

func clusterRoleBindingIndexers() map[string]func(*rbacv1.ClusterRoleBinding) []string {
	indexers := OwnerIndexers[*rbacv1.ClusterRoleBinding]()
	indexers[BySubject] = func(b *rbacv1.ClusterRoleBinding) []string { return subjectValues(b, b.Subjects) }
	return indexers
}

// AggregationPrefix begins the labels by which the rules of a ClusterRole belong to a built-in role, too. They are
// Kubernetes'.
const AggregationPrefix = rbacv1.GroupName + "/aggregate-to-"

// AggregationValue returns the value of a built-in role of a cluster in the index ByAggregation.
func AggregationValue(cluster logicalcluster.Name, role string) string {
	return cluster.String() + "|" + role
}

// ClusterRoleIndexers are the indexers of Informers.ClusterRoles.
func ClusterRoleIndexers() map[string]func(*rbacv1.ClusterRole) []string {
	indexers := OwnerIndexers[*rbacv1.ClusterRole]()
	indexers[ByAggregation] = func(r *rbacv1.ClusterRole) (values []string) {
		for label, value := range r.Labels {
			if to, ok := strings.CutPrefix(label, AggregationPrefix); ok && value == "true" {
				values = append(values, AggregationValue(clusters.KeyOf(r).Cluster, to))
			}
		}
		return values
	}
	indexers[ByAggregating] = func(r *rbacv1.ClusterRole) []string {
		if r.AggregationRule == nil {
			return nil
		}
		return []string{clusters.KeyOf(r).Cluster.String()}
	}
	return indexers
}
