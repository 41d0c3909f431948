package identity

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/shards"
)

// Sources are what an Identity reads of the store.
type Sources struct {
	// Informers are a little behind, and Reader is not.
	Informers controllers.Informers
	Reader    *apis.Reader
	// Others reads the other shards of the installation, and Homes says which of them has a logical cluster. Nil:
	// nobody does.
	Others *shards.Reader
	Homes  *shards.Homes
}

// late has the Sources. Upstream's API server needs an authenticator and an authorizer before it has a store, and the
// Sources come with the store. Until they are set, whatever needs them is refused.
type late struct{ atomic.Pointer[sources] }

// sources are Sources, and the policies that they hold.
type sources struct {
	Sources
	cached access.Policy
	stored *policies
	since  time.Time // when they were set
}

var errNotYet = errors.New("this replica does not read its store yet: try again")

func (l *late) bind(s Sources) {
	l.Store(&sources{
		Sources: s, cached: access.NewCached(s.Informers),
		stored: &policies{reader: s.Reader, logicalClusters: s.Informers.LogicalClusters},
		since:  time.Now(),
	})
}

// shards returns the Shard objects, or nil before they are set.
func (l *late) shards() *clusters.Informer[*corev1alpha1.Shard] {
	if s := l.Load(); s != nil {
		return s.Informers.Shards
	}
	return nil
}

// isNew reports whether the Sources may not have been read for long enough to know all that is there.
func (l *late) isNew() bool {
	s := l.Load()
	return s == nil || time.Since(s.since) < whileNew
}

// fresh implements access.Authorizer.Fresh.
func (l *late) fresh(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	if s := l.Load(); s != nil {
		return s.stored.fresh(ctx, cluster)
	}
	return nil, errNotYet
}

// stored returns the policy of a cluster as it is stored after the call has begun.
func (l *late) stored(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	if s := l.Load(); s != nil {
		return s.stored.stored(ctx, cluster)
	}
	return nil, errNotYet
}

// latePolicy is the policy in memory. Before the Sources are set it allows nothing.
type latePolicy struct{ *late }

func (l latePolicy) policy() access.Policy {
	if s := l.Load(); s != nil {
		return s.cached
	}
	return &access.Snapshot{}
}

// ClusterRole implements access.Policy.
func (l latePolicy) ClusterRole(cluster logicalcluster.Name, name string) (*rbacv1.ClusterRole, bool) {
	return l.policy().ClusterRole(cluster, name)
}

// Role implements access.Policy.
func (l latePolicy) Role(cluster logicalcluster.Name, namespace, name string) (*rbacv1.Role, bool) {
	return l.policy().Role(cluster, namespace, name)
}

// ClusterRoleBindings implements access.Policy.
func (l latePolicy) ClusterRoleBindings(cluster logicalcluster.Name, of []access.Subject) []*rbacv1.ClusterRoleBinding {
	return l.policy().ClusterRoleBindings(cluster, of)
}

// RoleBindings implements access.Policy.
func (l latePolicy) RoleBindings(cluster logicalcluster.Name, namespace string, of []access.Subject) []*rbacv1.RoleBinding {
	return l.policy().RoleBindings(cluster, namespace, of)
}

// AggregatedTo implements access.Policy.
func (l latePolicy) AggregatedTo(cluster logicalcluster.Name, role string) []*rbacv1.ClusterRole {
	return l.policy().AggregatedTo(cluster, role)
}

var _ access.Policy = latePolicy{}
