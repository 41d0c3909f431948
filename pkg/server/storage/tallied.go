package storage

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// tallied is what a resource's watch cache lists and watches. It tells the client below to count on the way.
type tallied struct {
	storage.Interface
	tally *tally
}

type tallyKey struct{}

func tallyFrom(ctx context.Context) *tally {
	t, _ := ctx.Value(tallyKey{}).(*tally)
	return t
}

// GetList lists all objects. The watch cache asks for pages of them, and for nothing else. But an etcd that streams
// counts what remains at the end of each page: of a million objects, that took it longer than to read them. An etcd
// that does not stream is read in pages all the same (see countedPages).
func (t *tallied) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, tallyKey{}, t.tally))
	defer cancel() // ends a stream that was not read to its end
	opts.Predicate.Limit = 0
	if stats, err := t.Interface.Stats(ctx); err == nil {
		if err := makeRoom(list, stats.ObjectCount); err != nil {
			return err
		}
	}
	t.tally.begin()
	if err := t.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("a list of %T: %w", list, err)
	}
	revision, err := strconv.ParseInt(of.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("the revision of a list of %T: %w", list, err)
	}
	t.tally.end(revision)
	return nil
}

// makeRoom lets a list take so many items. To grow with them took a tenth of reading a million.
func makeRoom(list runtime.Object, items int64) error {
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	reflect.ValueOf(pointer).Elem().Grow(int(items))
	return nil
}

// Watch watches all objects.
func (t *tallied) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return t.Interface.Watch(context.WithValue(ctx, tallyKey{}, t.tally), key, opts)
}

// IsWatchListSemanticsUnSupported is that of stamp, whose name the embedded interface hides.
func (t *tallied) IsWatchListSemanticsUnSupported() bool { return true }

// tallies are the tallies of all resources that have a watch cache, and the layers of the client that feed them.
type tallies struct {
	mu sync.RWMutex
	of map[schema.GroupResource]*tally

	forwarding forwarding
	// before is called with what etcd tells of, before others hear of it.
	before func(context.Context, []*clientv3.Event)
}

// add makes a tally for a resource. saw is told what is written in a cluster.
func (t *tallies) add(resource schema.GroupResource, prefix string, saw func(logicalcluster.Name, int)) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := newTally(prefix, saw)
	t.of[resource] = made
	return made
}

// know reports whether there is a tally for a resource that has listed all of it.
func (t *tallies) know(resource schema.GroupResource) bool {
	t.mu.RLock()
	of := t.of[resource]
	t.mu.RUnlock()
	return of != nil && of.listedAll()
}

// Stored returns how much of a resource a logical cluster has, or all clusters together with clusters.Wildcard. It lags
// behind etcd by as much as the watch of the resource. Of resources without a watch cache it knows nothing.
func (c *Client) Stored(cluster logicalcluster.Name, resource schema.GroupResource) Amount {
	c.tallies.mu.RLock()
	of := c.tallies.of[resource]
	c.tallies.mu.RUnlock()
	if of == nil {
		return Amount{}
	}
	return of.in(cluster)
}

// StoredIn returns how much of all resources a logical cluster has, or all clusters together with clusters.Wildcard, as
// Stored does.
func (c *Client) StoredIn(cluster logicalcluster.Name) (sum Amount) {
	c.tallies.mu.RLock()
	defer c.tallies.mu.RUnlock()
	for _, of := range c.tallies.of {
		sum = sum.plus(of.in(cluster))
	}
	return sum
}

// feed puts the layers that count into a client of etcd.
func (t *tallies) feed(etcd *kubernetes.Client) {
	etcd.Kubernetes = &countedPages{etcd.Kubernetes}
	etcd.KV = &countedStreams{etcd.KV, t}
	etcd.Watcher = &countedWatches{etcd.Watcher, t}
}

// pageOfCache is how many objects of a watch cache's list are read at once.
const pageOfCache = 10_000

// countedPages counts lists that are read page by page.
type countedPages struct{ kubernetes.Interface }

// List implements kubernetes.Interface. Of a list of everything it returns a page, and upstream's store asks for the
// next one.
func (c *countedPages) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	t := tallyFrom(ctx)
	if t != nil {
		opts.Limit = pageOfCache
	}
	page, err := c.Interface.List(ctx, prefix, opts)
	if t != nil && err == nil {
		t.list(page.Kvs)
	}
	return page, err
}

// countedStreams counts lists that are read as one stream. It reads each to its end, whoever asked for it: upstream's
// store abandons a stream when the list fails, or its client goes, and etcd's client waits for ever for somebody who
// takes the next chunk.
type countedStreams struct {
	clientv3.KV
	tallies *tallies
}

// GetStream implements clientv3.KV.
func (c *countedStreams) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	chunks, err := c.KV.GetStream(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	t := tallyFrom(ctx)
	return forward(ctx, &c.tallies.forwarding, chunks, func(chunk clientv3.RangeStreamResponse) {
		if t != nil && chunk.Err() == nil && chunk.RangeResponse != nil {
			t.list(chunk.Kvs)
		}
	}), nil
}

// countedWatches counts changes that are watched.
type countedWatches struct {
	clientv3.Watcher
	tallies *tallies
}

// Watch implements clientv3.Watcher.
func (c *countedWatches) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	responses := c.Watcher.Watch(ctx, key, opts...)
	t := tallyFrom(ctx)
	if t == nil {
		return responses
	}
	return forward(ctx, &c.tallies.forwarding, responses, func(r clientv3.WatchResponse) {
		c.tallies.before(ctx, r.Events)
		t.watch(r.Events)
		t.together.tell(ctx, r.Events)
	})
}

// Close implements clientv3.Watcher. It returns when nothing is forwarded any more.
func (c *countedWatches) Close() error {
	err := c.Watcher.Close()
	c.tallies.forwarding.close()
	return err
}
