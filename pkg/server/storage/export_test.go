package storage

import (
	"context"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BeforeCommit makes the guard call pause each time that all has been checked, and a transaction is about to be sent
// that is held to something: it compares more than its own key, and that its cluster is not frozen.
func (c *Client) BeforeCommit(pause func()) { c.calls.kv = paused{c.calls.kv, pause, 3} }

// BeforeAnyCommit is BeforeCommit of each transaction that compares anything.
func (c *Client) BeforeAnyCommit(pause func()) { c.calls.kv = paused{c.calls.kv, pause, 1} }

// CountReads calls count before each transaction that compares nothing.
func (c *Client) CountReads(count func()) { c.calls.kv = paused{c.calls.kv, count, 0} }

type paused struct {
	clientv3.KV
	pause func()
	least int // comparisons
}

func (p paused) Txn(ctx context.Context) clientv3.Txn {
	return &pausedTxn{Txn: p.KV.Txn(ctx), paused: p}
}

type pausedTxn struct {
	clientv3.Txn
	paused
	compares int
}

func (t *pausedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn, t.compares = t.Txn.If(cs...), len(cs)
	return t
}

func (t *pausedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }
func (t *pausedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *pausedTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.compares >= t.least {
		t.pause()
	}
	return t.Txn.Commit()
}

// LastRevision is the highest revision that the client knows etcd to have had.
func (c *Client) LastRevision() int64 { return c.history.revision.Load() }

// NewTries returns a KV that tries what kv does not answer again.
func NewTries(kv clientv3.KV) clientv3.KV { return &tries{KV: kv} }

// WithStream returns a context whose watches have a stream of their own.
func WithStream(ctx context.Context, name string) context.Context {
	return (&stream{resource: name}).own(ctx)
}

// HoldWatches lets nothing come from watches that are begun from now on.
func (c *Client) HoldWatches() { c.etcd.Watcher = silentWatcher{c.etcd.Watcher} }

type silentWatcher struct{ clientv3.Watcher }

func (silentWatcher) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	events := make(chan clientv3.WatchResponse)
	context.AfterFunc(ctx, func() { close(events) })
	return events
}

// Members is what is known of members of etcd.
type Members struct{ *members }

// NewMembers returns those at endpoints.
func NewMembers(endpoints ...string) Members { return Members{newMembers(endpoints)} }

// Hear takes in that the member at an endpoint has answered what it was asked at that time, Miss that it has not.
func (m Members) Hear(ctx context.Context, endpoint string, asked time.Time) {
	m.hear(ctx, m.at(endpoint), asked)
}

func (m Members) Miss(ctx context.Context, endpoint string, asked time.Time) {
	m.miss(ctx, m.at(endpoint), asked, nil)
}

// Avoids reports whether no connection is made to an endpoint.
func (m Members) Avoids(endpoint string) bool { return m.avoids(m.at(endpoint)) }

// Dial opens a connection to a member.
var Dial = dial

// NewStreams returns a KV whose lists that are one stream are read to their ends.
func NewStreams(kv clientv3.KV) clientv3.KV { return &countedStreams{kv, &tallies{}} }

// Tally is what is counted of a resource.
type Tally struct{ t *tally }

// NewTally returns one that has counted nothing.
func NewTally(prefix string) Tally { return Tally{newTally(prefix, unmetered{}.Saw)} }

// List counts a list of everything, in pages.
func (t Tally) List(revision int64, pages ...[]*mvccpb.KeyValue) {
	t.t.begin()
	for _, page := range pages {
		t.t.list(page)
	}
	t.t.end(revision)
}

// ListInterrupted counts a list that fails.
func (t Tally) ListInterrupted(page []*mvccpb.KeyValue) {
	t.t.begin()
	t.t.list(page)
}

// Watch counts changes.
func (t Tally) Watch(events []*clientv3.Event) { t.t.watch(events) }

// Tell logs changes that were made together.
func (t Tally) Tell(ctx context.Context, events []*clientv3.Event) { t.t.together.tell(ctx, events) }

// ListedAll is tally.listedAll.
func (t Tally) ListedAll() bool { return t.t.listedAll() }

// In returns what a cluster has.
func (t Tally) In(cluster logicalcluster.Name) Amount { return t.t.in(cluster) }

// Clusters returns how many clusters are known to have anything.
func (t Tally) Clusters() int { return len(t.t.counts.of) }

// OpenWatches is how many logical clusters have watches of clients.
func (c *Client) OpenWatches() int {
	c.watches.mu.Lock()
	defer c.watches.mu.Unlock()
	return len(c.watches.all)
}

// MayMove is as if the shard had others, to which logical clusters move.
func (c *Client) MayMove() { c.epochs.Store(&Epochs{MayMove: true}) }

// Watch is as if a client watched a logical cluster. ended reports whether that was ended.
func (c *Client) Watch(cluster logicalcluster.Name) (ended func() bool) {
	var one *openWatch
	one = c.watches.add(cluster, 0, func() { one.leave() })
	return func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.ended
	}
}

// OpsAtOnce is how many operations a transaction has at the most.
const OpsAtOnce = opsAtOnce

// HearDeletions is as if keys had been deleted at a revision.
func (c *Client) HearDeletions(ctx context.Context, revision int64, keys ...string) {
	var events []*clientv3.Event
	for _, key := range keys {
		events = append(events, &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(c.config.Prefix + key), ModRevision: revision}})
	}
	(&movings{c}).before(ctx, events)
}
