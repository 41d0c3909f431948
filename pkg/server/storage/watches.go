package storage

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
)

// watches are those that clients have of single logical clusters.
type watches struct {
	mu  sync.Mutex
	all map[logicalcluster.Name]*watched
}

// watched are the watches of a logical cluster. here is the newest revision of etcd at which it is known that the
// logical cluster had not moved away.
type watched struct {
	open map[*openWatch]struct{}
	here int64
}

// openWatch is a watch of a client. A zero one is in no list.
type openWatch struct {
	of      *watches
	cluster logicalcluster.Name
	epoch   int64
	end     context.CancelFunc

	mu    sync.Mutex
	ended bool
	from  watch.Interface
}

// errLeft is of a logical cluster that has moved while a watch began.
var errLeft = func() error {
	err := apierrors.NewServiceUnavailable("the logical cluster moves to another shard: try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}()

// add adds a watch, until it leaves.
func (w *watches) add(cluster logicalcluster.Name, epoch int64, end context.CancelFunc) *openWatch {
	one := &openWatch{of: w, cluster: cluster, epoch: epoch, end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[logicalcluster.Name]*watched{}
	}
	if w.all[cluster] == nil {
		w.all[cluster] = &watched{open: map[*openWatch]struct{}{}}
	}
	w.all[cluster].open[one] = struct{}{}
	return one
}

// leave removes a watch from the list.
func (o *openWatch) leave() {
	if o.of == nil {
		return
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	of := o.of.all[o.cluster]
	if of == nil {
		return
	}
	if delete(of.open, o); len(of.open) == 0 {
		delete(o.of.all, o.cluster)
	}
}

// serve takes note of where the events come from. It returns false, and stops that, if the watch has ended already.
func (o *openWatch) serve(from watch.Interface) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		from.Stop()
		return false
	}
	o.from = from
	return true
}

// cut ends a watch so that it gets nothing that comes later.
func (o *openWatch) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended = true; o.from != nil {
		o.from.Stop()
	}
	o.end()
}

// leaveGrace is how long watches of a logical cluster go on that has left. It was frozen before, so nothing new happens
// in it; what has happened is on its way to those that read slowly.
const leaveGrace = 200 * time.Millisecond

// endOthers ends the watches of a logical cluster that are of another epoch: their clients would see its versions as
// those of that one. When it has just come, all end that there are: they do not know what it has built in. When it has
// left, their clients go on at its new shard.
func (w *watches) endOthers(cluster logicalcluster.Name, epoch int64, change Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[cluster] == nil {
		return
	}
	for one := range w.all[cluster].open {
		switch {
		case change == HasLeft:
			time.AfterFunc(leaveGrace, one.end)
		case change == HasCome || one.epoch != epoch:
			one.end()
		}
	}
}

// doubtful returns the watched logical cluster of a key that was deleted at a revision, if it may have moved away by
// then.
func (w *watches) doubtful(key []byte, revision int64) (logicalcluster.Name, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return "", false
	}
	for segment := range bytes.SplitSeq(key, []byte("/")) {
		if of := w.all[logicalcluster.Name(segment)]; of != nil {
			return logicalcluster.Name(segment), of.here < revision
		}
	}
	return "", false
}

// isHere takes note that a logical cluster had not moved away at a revision.
func (w *watches) isHere(cluster logicalcluster.Name, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.all[cluster]; of != nil {
		of.here = max(of.here, revision)
	}
}

// cutAll ends the watches of a logical cluster before they get anything more.
func (w *watches) cutAll(cluster logicalcluster.Name) {
	w.mu.Lock()
	var all []*openWatch
	if of := w.all[cluster]; of != nil {
		for one := range of.open {
			all = append(all, one)
		}
	}
	w.mu.Unlock()
	for _, one := range all {
		one.cut()
	}
}

// movings keep deletions from watches of logical clusters that have moved away: their objects are there, on the
// other shard. The watches end when this replica hears of the move; but it may hear of the deletions first, for these
// are of other resources.
type movings struct{ client *Client }

// movingsPause is between two reads of an etcd that does not answer.
const movingsPause = 100 * time.Millisecond

// before ends such watches, before events of a resource are passed on. It asks etcd about the logical clusters that
// have deletions among them, about many at once, and only if clients watch them, and the shard has others.
func (d *movings) before(ctx context.Context, events []*clientv3.Event) {
	of := d.client.epochs.Load()
	if of == nil || !of.MayMove {
		return
	}
	var doubtful []logicalcluster.Name
	for _, e := range events {
		if e.Type != clientv3.EventTypeDelete {
			continue
		}
		if cluster, ok := d.client.watches.doubtful(bytes.TrimPrefix(e.Kv.Key, []byte(d.client.config.Prefix)), e.Kv.ModRevision); ok {
			doubtful = append(doubtful, cluster)
		}
	}
	slices.Sort(doubtful)
	for some := range slices.Chunk(slices.Compact(doubtful), opsAtOnce) {
		for ctx.Err() == nil {
			if err := d.settle(ctx, some); err == nil {
				break
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("It cannot be read whether logical clusters have moved: their deletions wait", "clusters", some, "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(movingsPause):
			}
		}
	}
}

// settle finds out which logical clusters have moved away, and ends the watches of these.
func (d *movings) settle(ctx context.Context, some []logicalcluster.Name) error {
	ctx, done := d.client.calls.begin(ctx)
	defer done()
	reads := make([]clientv3.Op, len(some))
	for n, cluster := range some {
		reads[n] = clientv3.OpGet(freezeKey(d.client.config.Prefix, cluster))
	}
	there, err := d.client.calls.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return err
	}
	for n, cluster := range some {
		if kvs := there.Responses[n].GetResponseRange().Kvs; len(kvs) > 0 && movedTo(kvs[0]) != (clusters.Move{}) {
			d.client.watches.cutAll(cluster)
			continue
		}
		d.client.watches.isHere(cluster, there.Header.Revision)
	}
	return nil
}
