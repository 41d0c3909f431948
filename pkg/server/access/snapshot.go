package access

import (
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// Snapshot is a policy that was read at once. Objects that the server has read carry their cluster.
type Snapshot struct {
	ClusterRoleList        []*rbacv1.ClusterRole
	RoleList               []*rbacv1.Role
	ClusterRoleBindingList []*rbacv1.ClusterRoleBinding
	RoleBindingList        []*rbacv1.RoleBinding
}

// ClusterRole implements Policy.
func (s *Snapshot) ClusterRole(cluster logicalcluster.Name, name string) (*rbacv1.ClusterRole, bool) {
	return find(s.ClusterRoleList, clusters.Key{Cluster: cluster, Name: name})
}

// Role implements Policy.
func (s *Snapshot) Role(cluster logicalcluster.Name, namespace, name string) (*rbacv1.Role, bool) {
	return find(s.RoleList, clusters.Key{Cluster: cluster, Namespace: namespace, Name: name})
}

// ClusterRoleBindings implements Policy.
func (s *Snapshot) ClusterRoleBindings(cluster logicalcluster.Name, _ []Subject) []*rbacv1.ClusterRoleBinding {
	return of(s.ClusterRoleBindingList, cluster, "")
}

// RoleBindings implements Policy.
func (s *Snapshot) RoleBindings(cluster logicalcluster.Name, namespace string, _ []Subject) []*rbacv1.RoleBinding {
	return of(s.RoleBindingList, cluster, namespace)
}

// AggregatedTo implements Policy.
func (s *Snapshot) AggregatedTo(cluster logicalcluster.Name, role string) []*rbacv1.ClusterRole {
	return slices.DeleteFunc(of(s.ClusterRoleList, cluster, ""), func(r *rbacv1.ClusterRole) bool {
		return r.Labels[AggregationLabel(role)] != "true"
	})
}

func find[T clusters.Object](objects []T, k clusters.Key) (T, bool) {
	for _, obj := range objects {
		if clusters.KeyOf(obj) == k {
			return obj, true
		}
	}
	var none T
	return none, false
}

func of[T clusters.Object](objects []T, cluster logicalcluster.Name, namespace string) (out []T) {
	for _, obj := range objects {
		if k := clusters.KeyOf(obj); k.Cluster == cluster && k.Namespace == namespace {
			out = append(out, obj)
		}
	}
	return out
}

var _ Policy = (*Snapshot)(nil)
