// Package loop is package control/loop with Regent's informers, which span all logical clusters, as sources of keys.
package loop

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/control/loop"
)

// Loop is control/loop's.
type Loop[K comparable] = loop.Loop[K]

// Source is control/loop's.
type Source[K comparable] = loop.Source[K]

// turn is how long a reconcile may take. A controller stalls after three times as long.
const turn = 20 * time.Second

// New returns a loop that calls reconcile from a number of workers. See control/loop. Logical clusters take turns, and
// whatever hangs for one of them leaves workers to the others (I18). A key is charged to the cluster that it names: it
// is a clusters.Key, the name of a cluster, or Clustered. Other keys are of the shard: nobody tells them apart, unless
// the loop's By says how.
//
// A reconcile has a deadline: nobody is worked for longer in one turn, whatever hangs, and however many objects there
// are. What it has not done then it does in its next turn. So it must come further each time.
func New[K comparable](name string, workers int, reconcile func(context.Context, K) error) *Loop[K] {
	l := loop.New(name, workers, reconcile)
	l.Within(turn)
	var none K
	switch any(none).(type) {
	case clusters.Key:
		l.By(func(k K) string { return any(k).(clusters.Key).Cluster.String() })
	case logicalcluster.Name:
		l.By(func(k K) string { return any(k).(logicalcluster.Name).String() })
	case Clustered:
		l.By(func(k K) string { return any(k).(Clustered).LogicalCluster().String() })
	}
	return l
}

// Clustered is a key of something in a logical cluster.
type Clustered interface{ LogicalCluster() logicalcluster.Name }

// Watch makes every change of an informer's object queue the keys of its old and its new state, and the sweep the keys
// of all objects. Run waits until the informer is synced. Call Watch before Run.
func Watch[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K) {
	WatchDue(l, inf, keys, func(T) bool { return true })
}

// WatchDue is Watch with a sweep that leaves out objects. It gives each object of the cache to due, which says whether
// anything is to be done about its keys. due must agree with the loop's Needs. Needs alone would have to find each of a
// million objects again by its key.
func WatchDue[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K, due func(T) bool) {
	s := followed(l, inf, keys)
	s.Pages = func(yield func(int, []K) bool) {
		walk(inf.Page, func(obj T) []K {
			if !due(obj) {
				return nil
			}
			return keys(obj)
		}, yield)
	}
	l.On(s)
}

// Follow is Watch without the sweep: it is for an informer whose objects' keys the sweep finds through another one, or
// that Add has queued. The last changes before Run queue their keys, too.
func Follow[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K) {
	l.On(followed(l, inf, keys))
}

func followed[K comparable, T clusters.Object](l *Loop[K], inf clusters.Cache[T], keys func(T) []K) Source[K] {
	each := func(old, new T, add func(K)) { eachOf(old, new, keys, add) }
	return Source[K]{
		Name:   "informer of " + reflect.TypeFor[T]().String(),
		Synced: inf.Synced(),
		Register: func() func() {
			return inf.Follow(func(old, new T) {
				defer l.Contain("event handler")
				each(old, new, l.Add)
			})
		},
		Recent: func(add func(K)) { inf.Recent(func(old, new T) { each(old, new, add) }) },
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

// walk reads page after page and yields the objects' keys, until there are no more objects or yield returns false.
func walk[K comparable, T clusters.Object](read func(after clusters.Key, n int) []T, keys func(T) []K, yield func(int, []K) bool) {
	var after clusters.Key
	for {
		page := read(after, pageSize)
		var found []K
		for _, obj := range page {
			found = append(found, keys(obj)...)
		}
		if !yield(len(page), found) || len(page) < pageSize {
			return
		}
		after = clusters.KeyOf(page[len(page)-1])
	}
}
