package access

import (
	"slices"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// Snapshot is a policy that was read at once, and must not change once it is used. Objects that the server has read
// carry their cluster.
type Snapshot struct {
	ClusterRoleList        []*rbacv1.ClusterRole
	RoleList               []*rbacv1.Role
	ClusterRoleBindingList []*rbacv1.ClusterRoleBinding
	RoleBindingList        []*rbacv1.RoleBinding

	// The roles by their keys, once one is looked for. A user may have as many roles as the cluster has.
	indexed      sync.Once
	clusterRoles map[clusters.Key]*rbacv1.ClusterRole
	roles        map[clusters.Key]*rbacv1.Role
}

func (s *Snapshot) index() {
	s.indexed.Do(func() { s.clusterRoles, s.roles = byKey(s.ClusterRoleList), byKey(s.RoleList) })
}

// ClusterRole implements Policy.
func (s *Snapshot) ClusterRole(cluster logicalcluster.Name, name string) (*rbacv1.ClusterRole, bool) {
	s.index()
	role, ok := s.clusterRoles[clusters.Key{Cluster: cluster, Name: name}]
	return role, ok
}

// Role implements Policy.
func (s *Snapshot) Role(cluster logicalcluster.Name, namespace, name string) (*rbacv1.Role, bool) {
	s.index()
	role, ok := s.roles[clusters.Key{Cluster: cluster, Namespace: namespace, Name: name}]
	return role, ok
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
	label := controllers.AggregationPrefix + role
	return slices.DeleteFunc(of(s.ClusterRoleList, cluster, ""), func(r *rbacv1.ClusterRole) bool {
		return r.Labels[label] != "true"
	})
}

func byKey[T clusters.Object](objects []T) map[clusters.Key]T {
	out := make(map[clusters.Key]T, len(objects))
	for _, obj := range objects {
		out[clusters.KeyOf(obj)] = obj
	}
	return out
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
