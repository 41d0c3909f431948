package storage

import (
	"bytes"
	"context"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
)

// Amount is how much there is of something in etcd: how many objects, and how many bytes their values have as they are
// stored, encrypted if they are.
type Amount struct{ Objects, Bytes int64 }

func (a Amount) plus(b Amount) Amount { return Amount{a.Objects + b.Objects, a.Bytes + b.Bytes} }

func (a Amount) minus(b Amount) Amount { return Amount{a.Objects - b.Objects, a.Bytes - b.Bytes} }

func amountOf(kv *mvccpb.KeyValue) Amount { return Amount{1, int64(len(kv.Value))} }

// tally knows how much of one resource each logical cluster has. It counts what the resource's watch cache lists and
// watches in etcd, as it passes, and nothing else. An event has the value before it, too, so nothing is kept of single
// objects.
//
// It lags behind etcd by as much as the watch.
type tally struct {
	prefix   []byte // what the resource's keys begin with, with a slash at its end
	saw      func(cluster logicalcluster.Name, bytes int)
	together together

	mu     sync.RWMutex
	counts counts
	// listed is what the list that is under way has brought so far.
	listed counts
	// revision is that of the last change that is counted. A watch that was interrupted begins with changes that
	// are.
	revision int64
}

// counts are amounts by logical cluster, without those that have nothing, and their sum.
type counts struct {
	of  map[logicalcluster.Name]Amount
	all Amount
}

func newTally(prefix string, saw func(logicalcluster.Name, int)) *tally {
	return &tally{prefix: []byte(prefix + "/"), saw: saw, counts: counts{of: map[logicalcluster.Name]Amount{}}}
}

// in returns how much a cluster has, or all clusters together with clusters.Wildcard.
func (t *tally) in(cluster logicalcluster.Name) Amount {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if cluster == clusters.Wildcard {
		return t.counts.all
	}
	return t.counts.of[cluster]
}

// listedAll reports whether the first list has ended. Until then nothing is known of any cluster.
func (t *tally) listedAll() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision > 0
}

// begin is called when a list of everything begins.
func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = counts{of: map[logicalcluster.Name]Amount{}}
}

// list counts what the list under way has brought.
func (t *tally) list(kvs []*mvccpb.KeyValue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, kv := range kvs {
		t.listed.add(t.clusterOf(kv.Key), amountOf(kv))
	}
}

// end replaces what was counted by what was listed at the revision.
func (t *tally) end(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts, t.listed, t.revision = t.listed, counts{}, revision
}

// watch counts changes, all those of a revision at once.
func (t *tally) watch(events []*clientv3.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counted := t.revision
	for _, e := range events {
		if e.Kv.ModRevision <= counted {
			continue
		}
		t.revision = e.Kv.ModRevision
		var change Amount
		if e.Type == clientv3.EventTypePut {
			change = amountOf(e.Kv)
			t.saw(logicalcluster.Name(t.clusterOf(e.Kv.Key)), len(e.Kv.Value))
		}
		if e.PrevKv != nil {
			change = change.minus(amountOf(e.PrevKv))
		}
		t.counts.add(t.clusterOf(e.Kv.Key), change)
	}
}

// clusterOf returns the segment of a key that names the cluster. It shares the key's memory.
func (t *tally) clusterOf(key []byte) []byte {
	rest, _ := bytes.CutPrefix(key, t.prefix)
	cluster, _, _ := bytes.Cut(rest, []byte("/"))
	return cluster
}

// add changes what a cluster has.
func (c *counts) add(cluster []byte, by Amount) {
	c.all = c.all.plus(by)
	has, known := c.of[logicalcluster.Name(cluster)]
	switch has = has.plus(by); {
	case has == Amount{}:
		delete(c.of, logicalcluster.Name(cluster))
	case known:
		c.of[logicalcluster.Name(cluster)] = has
	default:
		c.of[logicalcluster.Name(cluster)] = has
	}
}

// together tells when objects of one resource were changed together, in one revision of etcd. A replica never does
// that: each write is of one object.
//
// Whoever watches goes on from a revision, after its watch has ended. It has then seen everything up to that revision,
// or so upstream takes it: the rest of a revision of which it has seen a part is never shown to it. So informers of
// replicas, and clients, go without these objects until they list again.
type together struct{ once sync.Once }

// tell logs it for the first of a resource's changes to which it has happened. A response of etcd has all changes of a
// revision.
func (t *together) tell(ctx context.Context, events []*clientv3.Event) {
	for n, e := range events {
		if n == 0 || e.Kv.ModRevision != events[n-1].Kv.ModRevision {
			continue
		}
		t.once.Do(func() {
			klog.FromContext(ctx).Error(nil, "Objects were changed together, in one transaction of etcd, and not by a replica. Watches may have missed some of them for good: "+
				"restart the replicas, and write objects one by one", "key", string(e.Kv.Key), "revision", e.Kv.ModRevision)
		})
		return
	}
}
