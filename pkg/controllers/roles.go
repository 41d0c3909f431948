package controllers

import (
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// ByAggregation is the index of Informers.ClusterRoles by the built-in roles to which they are aggregated. Its values are
// AggregationValue. ByAggregating is that of the roles with an aggregation rule. Its values are the names of their clusters.
const (
	ByAggregation = "aggregation"
	ByAggregating = "aggregating"
)

// aggregationPrefix begins the labels that say to which built-in role a ClusterRole's rules belong, too. They are Kubernetes'.
const aggregationPrefix = rbacv1.GroupName + "/aggregate-to-"

// AggregationValue returns the value of a built-in role of a cluster in the index ByAggregation.
func AggregationValue(cluster logicalcluster.Name, role string) string {
	return cluster.String() + "|" + role
}

func clusterRoleIndexers() map[string]func(*rbacv1.ClusterRole) []string {
	indexers := OwnerIndexers[*rbacv1.ClusterRole]()
	indexers[ByAggregation] = func(r *rbacv1.ClusterRole) (values []string) {
		for label, value := range r.Labels {
			if to, ok := strings.CutPrefix(label, aggregationPrefix); ok && value == "true" {
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
