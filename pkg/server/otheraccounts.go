package server

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/serviceaccounts"
	"github.com/regent-project/regent/pkg/server/shards"
	"github.com/regent-project/regent/pkg/server/status"
)

// otherShards are those whose service accounts this replica knows. The caches are set before the server serves.
type otherShards struct{ caches atomic.Pointer[caches] }

// reader returns what reads the other shards, and nil if nothing does.
func (o *otherShards) reader() *shards.Reader {
	if c := o.caches.Load(); c != nil {
		return c.others
	}
	return nil
}

// Heard implements serviceaccounts.Peers.
func (o *otherShards) Heard() map[string]bool {
	if reader := o.reader(); reader != nil {
		return reader.Heard()
	}
	return nil
}

var errLone = errors.New("this replica reads from no other shard")

// Ask implements serviceaccounts.Peers.
func (o *otherShards) Ask(ctx context.Context, shard, path string, each time.Duration, limit int64) ([]byte, error) {
	reader := o.reader()
	if reader == nil {
		return nil, errLone
	}
	return reader.Ask(ctx, shard, path, each, limit)
}

// CheckHome implements serviceaccounts.Peers.
func (o *otherShards) CheckHome(ctx context.Context, shard string, cluster logicalcluster.Name) error {
	if o.reader() == nil {
		return errLone
	}
	return o.caches.Load().homes.Check(ctx, shard, cluster)
}

// newHomes returns what says whether another shard has a logical cluster.
func (r *run) newHomes(c *caches, store *store) *shards.Homes {
	return shards.NewHomes(shards.HomesConfig{
		Own: r.cfg.Shard, Root: r.cfg.rootShard(), Members: c.others.Members, Heard: c.others.Heard, Live: c.others, Here: c.live,
		Confirmed: &confirmed{client: store.Etcd(), prefix: store.Prefix()},
	})
}

// accountQuestions returns what other shards ask about the service accounts of this one, by path.
func accountQuestions(issuer *serviceaccounts.Issuer, accounts *serviceaccounts.Authenticator) map[string]description {
	return map[string]description{
		status.TokenKeysPath: func(*http.Request) (any, error) { return issuer.Published() },
		status.AccountPath: func(req *http.Request) (any, error) {
			asked, err := serviceaccounts.ReadQuestion(req.URL.Query())
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			answer, err := accounts.Answer(req.Context(), asked)
			if err != nil {
				return nil, routing.NewUnavailable(err.Error())
			}
			return answer, nil
		},
	}
}

var _ serviceaccounts.Peers = (*otherShards)(nil)
