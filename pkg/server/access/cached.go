package access

import (
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// NewCached returns the policy that informers have.
func NewCached(i controllers.Informers) Policy {
	return cached{i, creators{lru.New(rememberedCreators)}}
}

type cached struct {
	informers controllers.Informers
	creators  creators
}

func (c cached) ClusterRole(cluster logicalcluster.Name, name string) (*rbacv1.ClusterRole, bool) {
	return c.informers.ClusterRoles.Get(clusters.Key{Cluster: cluster, Name: name})
}

func (c cached) Role(cluster logicalcluster.Name, namespace, name string) (*rbacv1.Role, bool) {
	return c.informers.Roles.Get(clusters.Key{Cluster: cluster, Namespace: namespace, Name: name})
}

func (c cached) ClusterRoleBindings(cluster logicalcluster.Name, of []Subject) []*rbacv1.ClusterRoleBinding {
	found := about(c.informers.ClusterRoleBindings, cluster, "", of)
	if built := c.ofCreator(cluster, of); built != nil {
		found = append(slices.Clone(found), built)
	}
	return found
}

// ofCreator returns the built-in binding of a cluster if it has one of the subjects, and has been neither changed nor
// deleted. Until all that is stored has been read, that is not known.
func (c cached) ofCreator(cluster logicalcluster.Name, of []Subject) *rbacv1.ClusterRoleBinding {
	lc, ok := c.informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	if !ok || !clusters.HasBuiltIn(lc) {
		return nil
	}
	binding := c.creators.bindingOf(lc)
	if binding == nil || !slices.ContainsFunc(of, func(s Subject) bool { return s.Kind == binding.Subjects[0].Kind && s.Name == binding.Subjects[0].Name }) {
		return nil
	}
	select {
	case <-c.informers.ClusterRoleBindings.Synced():
	default:
		return nil
	}
	if _, stored := c.informers.ClusterRoleBindings.Get(clusters.Key{Cluster: cluster, Name: binding.Name}); stored {
		return nil
	}
	return binding
}

// creators remembers bindings of creators, because each request in a cluster needs the one of it.
type creators struct{ bindings *lru.Cache } // by annotation

// rememberedCreators is how many are remembered. There are as many as users who make workspaces.
const rememberedCreators = 4096

// bindingOf returns the binding of a cluster's creator, or nil. Callers must not change it.
func (c creators) bindingOf(lc *corev1alpha1.LogicalCluster) *rbacv1.ClusterRoleBinding {
	owner := lc.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]
	if owner == "" {
		return nil
	}
	if found, ok := c.bindings.Get(owner); ok {
		return found.(*rbacv1.ClusterRoleBinding)
	}
	binding, err := clusters.CreatorBindingOf(lc)
	if err != nil {
		binding = nil
	}
	c.bindings.Add(owner, binding)
	return binding
}

func (c cached) RoleBindings(cluster logicalcluster.Name, namespace string, of []Subject) []*rbacv1.RoleBinding {
	return about(c.informers.RoleBindings, cluster, namespace, of)
}

// about finds bindings by an index, because a cluster may have thousands. If a user has many names, each binding is
// returned once: otherwise one that names all of its groups would be looked through for each of them.
func about[T clusters.Object](in *clusters.Informer[T], cluster logicalcluster.Name, namespace string, of []Subject) (out []T) {
	var seen map[clusters.Key]struct{}
	if len(of) > fewGroups {
		seen = map[clusters.Key]struct{}{}
	}
	for _, s := range of {
		found := in.ByIndex(controllers.BySubject, controllers.SubjectValue(cluster, namespace, s.Kind, s.Name))
		if seen != nil {
			found = slices.DeleteFunc(slices.Clone(found), func(b T) bool {
				_, again := seen[clusters.KeyOf(b)]
				seen[clusters.KeyOf(b)] = struct{}{}
				return again
			})
		}
		if out == nil {
			out = found
			continue
		}
		out = append(out, found...)
	}
	return out
}

func (c cached) AggregatedTo(cluster logicalcluster.Name, role string) []*rbacv1.ClusterRole {
	return c.informers.ClusterRoles.ByIndex(controllers.ByAggregation, controllers.AggregationValue(cluster, role))
}
