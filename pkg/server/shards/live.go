package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// liveTimeout is how long a read of another shard may take.
const liveTimeout = 5 * time.Second

// Workspace implements controllers.ShardReader.
func (r *Reader) Workspace(ctx context.Context, shard string, key clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	p, err := r.peer(shard)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	return p.clients.Workspaces.Get(clusters.With(ctx, key.Cluster), key.Name, metav1.GetOptions{})
}

// LogicalCluster implements controllers.ShardReader.
func (r *Reader) LogicalCluster(ctx context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	p, err := r.peer(shard)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	lc, err := p.clients.LogicalClusters.Get(clusters.With(ctx, cluster), corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && clusters.MoveIn(status.Status()) != (clusters.Move{}) {
		err = &goneElsewhere{clusters.MovedError{Cluster: cluster, To: clusters.MoveIn(status.Status())}}
	}
	if err == nil && clusters.HasMoved(lc) { // the replica that has read it has not heard of it yet
		return nil, &goneElsewhere{clusters.MovedError{Cluster: cluster, To: clusters.MovedTo(lc)}}
	}
	return lc, err
}

// goneElsewhere is a NotFound, and wraps a clusters.MovedError.
type goneElsewhere struct{ moved clusters.MovedError }

// Error implements error.
func (g *goneElsewhere) Error() string { return g.moved.Error() }

// Unwrap is for errors.As.
func (g *goneElsewhere) Unwrap() error { return &g.moved }

// Status implements apierrors.APIStatus.
func (g *goneElsewhere) Status() metav1.Status {
	status := apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), g.moved.Cluster.String()).Status()
	status.Message = g.moved.Error()
	return status
}

func (r *Reader) peer(shard string) (*peer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.peers[shard]
	if !ok {
		return nil, fmt.Errorf("shard %s is no member of the installation that this replica reads from", shard)
	}
	return p, nil
}

var _ controllers.ShardReader = (*Reader)(nil)
