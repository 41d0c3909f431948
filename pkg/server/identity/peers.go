package identity

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
	"github.com/regent-project/regent/pkg/server/shards"
)

// peers are the other shards, whose service accounts this replica knows.
type peers struct{ late *late }

// reader returns what reads the other shards, and nil if nothing does.
func (p *peers) reader() *shards.Reader {
	if s := p.late.Load(); s != nil {
		return s.Others
	}
	return nil
}

// Hears implements serviceaccounts.Peers.
func (p *peers) Hears() map[string]bool {
	if reader := p.reader(); reader != nil {
		return reader.Peers()
	}
	return nil
}

var errLone = errors.New("this replica reads from no other shard")

// Ask implements serviceaccounts.Peers.
func (p *peers) Ask(ctx context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error) {
	reader := p.reader()
	if reader == nil {
		return nil, errLone
	}
	return reader.Ask(ctx, shard, path, each, limit)
}

// CheckHome implements serviceaccounts.Peers.
func (p *peers) CheckHome(ctx context.Context, shard string, cluster logicalcluster.Name) error {
	if p.reader() == nil {
		return errLone
	}
	return p.late.Load().Homes.Check(ctx, shard, cluster)
}

// Home implements serviceaccounts.Peers.
func (p *peers) Home(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	if p.reader() == nil {
		return "", errLone
	}
	shard, _, err := p.late.Load().Homes.Find(ctx, cluster.Path())
	return shard, err
}

// HasMovedFrom implements serviceaccounts.Peers.
func (p *peers) HasMovedFrom(shard string, cluster logicalcluster.Name) bool {
	s := p.late.Load()
	if s == nil {
		return false
	}
	lc, ok := s.Informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	return ok && !clusters.IsComing(lc) && !clusters.HasMoved(lc) && slices.Contains(clusters.OriginsOf(lc), shard)
}

var _ serviceaccounts.Peers = (*peers)(nil)
