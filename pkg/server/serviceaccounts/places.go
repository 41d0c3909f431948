package serviceaccounts

import (
	"context"
	"errors"
	"sync"
)

// placesOfShard is how many questions to one shard may be under way. Whoever finds none waits: so a shard that is slow
// costs its own accounts time, and this replica few connections and nobody else anything.
const placesOfShard = 16

// places are those for questions, by shard. There are few shards, and their names are never used again: so none is
// forgotten.
type places struct{ byShard sync.Map } // of chan struct{}

// enter waits for a place, until ctx ends.
func (p *places) enter(ctx context.Context, shard string) (leave func(), err error) {
	found, ok := p.byShard.Load(shard)
	if !ok {
		found, _ = p.byShard.LoadOrStore(shard, make(chan struct{}, placesOfShard))
	}
	of := found.(chan struct{})
	select {
	case of <- struct{}{}:
		return func() { <-of }, nil
	case <-ctx.Done():
		return nil, errors.New("too many questions about its accounts wait for it: try again")
	}
}
