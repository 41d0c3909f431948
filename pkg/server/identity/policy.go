package identity

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis"
)

// policies reads the roles and bindings of logical clusters from storage.
type policies struct {
	reader          *apis.Reader
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	reads           sharedReads
}

// young is how long after a cluster was created its policy is read from storage before somebody is refused. Whoever is
// told that a new workspace is Ready may use it at once through any replica, and this one's caches may be behind.
const young = 30 * time.Second

// fresh returns the stored policy of a cluster that is young, and nil for others.
func (p *policies) fresh(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	lc, ok := p.logicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	// A clock that is far behind must not make old clusters young for ever.
	if ok && time.Since(lc.CreationTimestamp.Time).Abs() > young {
		return nil, nil //nolint:nilnil // the interface says what nil stands for
	}
	return p.stored(ctx, cluster)
}

// stored returns the policy of a cluster as it is stored after the call has begun.
func (p *policies) stored(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	return p.reads.do(ctx, cluster, func() (access.Policy, error) { return p.read(context.WithoutCancel(ctx), cluster) })
}

// policyTimeout is how long a read of a policy may take.
const policyTimeout = 5 * time.Second

// read reads the policy of a cluster.
func (p *policies) read(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	ctx, cancel := context.WithTimeout(clusters.WithOnly(ctx, cluster), policyTimeout)
	defer cancel()
	out := &access.Snapshot{}
	return out, cmp.Or(
		readAll(ctx, p.reader, "clusterroles", &out.ClusterRoleList),
		readAll(ctx, p.reader, "roles", &out.RoleList),
		readAll(ctx, p.reader, "clusterrolebindings", &out.ClusterRoleBindingList),
		readAll(ctx, p.reader, "rolebindings", &out.RoleBindingList),
	)
}

func readAll[T runtime.Object](ctx context.Context, reader *apis.Reader, resource string, into *[]T) error {
	all, err := apis.List[T](ctx, reader, rbacv1.SchemeGroupVersion.WithResource(resource))
	if err != nil {
		return fmt.Errorf("read all %s: %w", resource, err)
	}
	*into = all
	return nil
}
