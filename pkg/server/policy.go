package server

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"golang.org/x/sync/singleflight"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/apis"
)

// policies reads the roles and bindings of young logical clusters from storage.
type policies struct {
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	stored          func(context.Context, logicalcluster.Name) (access.Policy, error)
	reads           singleflight.Group // of readPolicy, by cluster
}

// readPolicy is a policy with the time at which its read began.
type readPolicy struct {
	access.Policy
	began time.Time
}

// young is how long after a cluster was created its policy is read from storage before somebody is refused. Whoever is told that a new
// workspace is Ready may use it at once through any replica, and this one's caches may be behind.
const young = 30 * time.Second

// fresh implements access.Authorizer.Fresh. Requests share reads, but none uses a read that began before the request came: what was written in
// between would be missing.
func (p *policies) fresh(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	lc, ok := p.logicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	// A clock that is far behind must not make old clusters young for ever.
	if ok && time.Since(lc.CreationTimestamp.Time).Abs() > young {
		return nil, nil //nolint:nilnil // the interface says what nil stands for
	}
	for came := time.Now(); ; {
		shared, err, _ := p.reads.Do(cluster.String(), func() (any, error) {
			began := time.Now()
			policy, err := p.stored(context.WithoutCancel(ctx), cluster)
			return readPolicy{policy, began}, err
		})
		if err != nil {
			return nil, err
		}
		if read := shared.(readPolicy); !read.began.Before(came) {
			return read.Policy, nil
		}
	}
}

// policyTimeout is how long a read of a policy may take.
const policyTimeout = 5 * time.Second

// policy reads the policy of a cluster.
func (l *live) policy(ctx context.Context, cluster logicalcluster.Name) (access.Policy, error) {
	ctx, cancel := context.WithTimeout(inCluster(ctx, cluster), policyTimeout)
	defer cancel()
	out := &access.Snapshot{}
	return out, cmp.Or(
		readAll(ctx, l.reader, "clusterroles", &out.ClusterRoleList),
		readAll(ctx, l.reader, "roles", &out.RoleList),
		readAll(ctx, l.reader, "clusterrolebindings", &out.ClusterRoleBindingList),
		readAll(ctx, l.reader, "rolebindings", &out.RoleBindingList),
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
