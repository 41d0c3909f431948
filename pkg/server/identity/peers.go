package identity

import (
	"context"
	"errors"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"

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

var _ serviceaccounts.Peers = (*peers)(nil)
