// Package loop is package control/loop with Regent's informers, which span all logical clusters, as sources of keys.
package loop

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/control/loop"
)

// Loop is control/loop's, for the keys of a range. Each key belongs to the range of the logical cluster that it names:
// it is a clusters.Key, the name of a cluster, or Clustered. Other keys are of the shard as a whole, and belong to the
// range of its own clusters. Keys of other ranges are dropped, whoever adds them: these have a leader of their own.
type Loop[K comparable] struct {
	*loop.Loop[K]
	of clusters.Range
	at func(K) logicalcluster.Name
}

// Source is control/loop's.
type Source[K comparable] = loop.Source[K]

// turn is how long a reconcile may take. A controller stalls after three times as long.
const turn = 20 * time.Second

// movedInterval is how long a reconcile waits that came upon a cluster which has just moved to another shard. What is
// here of it is removed soon, and whoever leads there goes on.
const movedInterval = time.Second

// New returns a loop that calls reconcile from a number of workers. See control/loop. Logical clusters take turns, and
// whatever hangs for one of them leaves workers to the others (I18). A key is charged to the cluster that it names.
// Nobody tells other keys apart, unless the loop's By says how.
//
// A reconcile has a deadline: nobody is worked for longer in one turn, whatever hangs, and however many objects there
// are. What it has not done then it does in its next turn. So it must come further each time.
func New[K comparable](of clusters.Range, name string, workers int, reconcile func(context.Context, K) error) *Loop[K] {
	l := &Loop[K]{of: of, at: clusterOf[K]()}
	l.Loop = loop.New(name, workers, func(ctx context.Context, k K) error {
		err := reconcile(ctx, k)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && clusters.MoveIn(status.Status()) != (clusters.Move{}) {
			klog.FromContext(ctx).V(4).Info("A logical cluster has moved to another shard", "key", k, "err", err)
			l.AddAfter(k, movedInterval)
			return nil
		}
		return err
	})
	l.Within(turn)
	if l.at != nil {
		l.By(func(k K) string { return l.at(k).String() })
	}
	return l
}

// Clustered is a key of something in a logical cluster. Without one it belongs to whichever range it is added to.
type Clustered interface{ LogicalCluster() logicalcluster.Name }

// clusterOf returns a function that returns the cluster that a key names; nil: keys of that type name none.
func clusterOf[K comparable]() func(K) logicalcluster.Name {
	var none K
	switch any(none).(type) {
	case clusters.Key:
		return func(k K) logicalcluster.Name { return any(k).(clusters.Key).Cluster }
	case logicalcluster.Name:
		return func(k K) logicalcluster.Name { return any(k).(logicalcluster.Name) }
	case Clustered:
		return func(k K) logicalcluster.Name { return any(k).(Clustered).LogicalCluster() }
	}
	return nil
}

// Has reports whether a key belongs to the loop's range.
func (l *Loop[K]) Has(k K) bool {
	if l.at == nil {
		return l.of.Has(clusters.SystemShards)
	}
	at := l.at(k)
	return at.Empty() || l.of.Has(at)
}

// Add queues a key now, if it belongs to the range.
func (l *Loop[K]) Add(k K) { l.AddAfter(k, 0) }

// AddAfter queues a key after a delay, if it belongs to the range.
func (l *Loop[K]) AddAfter(k K, delay time.Duration) {
	if l.Has(k) {
		l.Loop.AddAfter(k, delay)
	}
}

// Watch makes every change of an object of the range queue the keys of its old and its new state, and the sweep the
// keys of all of these objects. Run waits until the informer is synced. Call Watch before Run.
func Watch[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K) {
	WatchDue(l, inf, keys, func(T) bool { return true })
}

// WatchDue is Watch with a sweep that leaves out objects. It gives each object of the range to due, which says whether
// anything is to be done about its keys. due must agree with the loop's Needs. Needs alone would have to find each of a
// million objects again by its key.
func WatchDue[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K, due func(T) bool) {
	s := followed(l, l.of, inf, keys)
	s.Pages = func(yield func(int, []K) bool) {
		page := func(after clusters.Key, n int) ([]T, clusters.Key) { return inf.Page(l.of, after, n) }
		l.walk(pages(page, func(obj T) []K {
			if !due(obj) {
				return nil
			}
			return keys(obj)
		}), yield)
	}
	l.On(s)
}

// Follow is Watch without the sweep: it is for an informer whose objects' keys the sweep finds through another one, or
// that Add has queued. The last changes before Run queue their keys, too.
func Follow[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K) {
	l.On(followed(l, l.of, inf, keys))
}

// FollowAll is Follow for an informer whose objects have keys of other logical clusters: it follows the objects of all
// ranges.
func FollowAll[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K) {
	l.On(followed(l, clusters.Range{}, inf, keys))
}

func followed[K comparable, T clusters.Object](l *Loop[K], of clusters.Range, inf clusters.Cache[T], keys func(T) []K) Source[K] {
	return Source[K]{
		Name:   "informer of " + reflect.TypeFor[T]().String(),
		Synced: inf.Synced(),
		Register: func() func() {
			return inf.Follow(of, func(old, new T) {
				defer l.Contain("event handler")
				eachOf(old, new, keys, l.Add)
			})
		},
		Recent: func(add func(K)) { inf.Recent(of, func(old, new T) { eachOf(old, new, keys, l.own(add)) }) },
	}
}

// own returns a function that calls add with the keys that belong to the range.
func (l *Loop[K]) own(add func(K)) func(K) {
	return func(k K) {
		if l.Has(k) {
			add(k)
		}
	}
}

// eachOf calls add with the keys of an object's old and new states, and once if these have the same: a worker may take
// a key before it is added again.
func eachOf[K comparable, T clusters.Object](old, new T, keys func(T) []K, add func(K)) {
	var none T
	var before []K
	for _, obj := range []T{old, new} {
		if any(obj) == any(none) {
			continue
		}
		now := keys(obj)
		if slices.Equal(before, now) {
			continue
		}
		for _, k := range now {
			add(k)
		}
		before = now
	}
}

// pageSize is how many objects the sweep reads at a time.
const pageSize = 64

// pages returns the objects of all pages, as numbers and keys of each page.
func pages[K comparable, T clusters.Object](read func(after clusters.Key, n int) (page []T, next clusters.Key), keys func(T) []K) iter.Seq2[int, []K] {
	return func(yield func(int, []K) bool) {
		for after := (clusters.Key{}); ; {
			page, next := read(after, pageSize)
			var found []K
			for _, obj := range page {
				found = append(found, keys(obj)...)
			}
			if !yield(len(page), found) || next == (clusters.Key{}) {
				return
			}
			after = next
		}
	}
}

// walk yields page after page with those keys that belong to the range. It returns false if yield does.
func (l *Loop[K]) walk(all iter.Seq2[int, []K], yield func(int, []K) bool) bool {
	for objects, keys := range all {
		if !yield(objects, slices.DeleteFunc(keys, func(k K) bool { return !l.Has(k) })) {
			return false
		}
	}
	return true
}
