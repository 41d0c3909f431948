package installation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// ErrNotMoving is of a logical cluster that comes to no shard.
var ErrNotMoving = errors.New("it does not move")

// CancelMove has the logical cluster at a path stay where it is, if somebody moves it, and returns its shard. The error
// wraps ErrNotMoving if nobody does, and says so if it has moved by then.
func (a *Admin) CancelMove(ctx context.Context, path logicalcluster.Path) (at string, err error) {
	m := &mover{}
	defer m.close()
	origin, lc, err := a.find(ctx, path, m)
	if err != nil {
		return "", err
	}
	to, err := a.interrupt(ctx, m, origin.name, logicalcluster.From(lc))
	if err != nil {
		return origin.name, fmt.Errorf("cancel the move of %s, which is on shard %s: %w", path, origin.name, err)
	}
	if err := to.awaitGone(ctx, logicalcluster.From(lc)); err != nil {
		return origin.name, fmt.Errorf("cancel the move of %s to shard %s: %w", path, to.name, err)
	}
	now, _, err := a.find(ctx, path, m)
	if err == nil && now.name != origin.name {
		err = fmt.Errorf("it has moved to shard %s meanwhile: move it back", now.name)
	}
	if err != nil {
		return "", err
	}
	return now.name, nil
}

// interrupt has the shard go on no more to which a logical cluster comes, and returns it. All are asked at once: one
// that hangs does not keep the others from it.
func (a *Admin) interrupt(ctx context.Context, m *mover, origin string, cluster logicalcluster.Name) (*shardClient, error) {
	all, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	var shards []*shardClient
	for _, member := range all {
		if member.Name == origin {
			continue
		}
		shard, err := a.askMember(member, m)
		if err != nil {
			return nil, err
		}
		shards = append(shards, shard)
	}
	faults := make([]error, len(shards))
	var asking sync.WaitGroup
	for n, shard := range shards {
		asking.Go(func() { faults[n] = shard.coming(ctx, http.MethodDelete, cluster) })
	}
	asking.Wait()
	var silent []error
	for n, shard := range shards {
		switch {
		case faults[n] == nil:
			return shard, nil
		case !apierrors.IsNotFound(faults[n]):
			silent = append(silent, faults[n])
		}
	}
	if err := errors.Join(silent...); err != nil {
		return nil, err
	}
	return nil, ErrNotMoving
}

// coming asks a shard about a logical cluster that comes to it.
func (s *shardClient) coming(ctx context.Context, verb string, cluster logicalcluster.Name) error {
	_, err := s.do(ctx, s.client.Verb(verb).AbsPath(clusters.RequestPath(clusters.SystemAdmin)+bundle.ArrivingPath).Param("cluster", cluster.String()))
	return err
}

// awaitGone waits until a logical cluster comes to a shard no more: its leader looks each five seconds, and waits for
// the freeze of the other shard, which lasts for ten.
func (s *shardClient) awaitGone(ctx context.Context, cluster logicalcluster.Name) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		err := s.coming(ctx, http.MethodGet, cluster)
		if apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("its leader has not ended it yet, and will: regent status shows it: %w", ctx.Err()), err)
		case <-time.After(settlePause):
		}
	}
}
