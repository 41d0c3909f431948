package loop

import "github.com/regent-project/regent/pkg/clusters"

// WatchForeign is Watch for objects of other shards. Run does not wait for them: another shard may be away for long, and its objects
// queue their keys when it is back.
func WatchForeign[K comparable, T clusters.Object](l *Loop[K], foreign *clusters.Foreign[T], keys func(shard string, obj T) []K) {
	of := func(shard string) func(T) []K { return func(obj T) []K { return keys(shard, obj) } }
	now := make(chan struct{})
	close(now)
	l.wirings = append(l.wirings, wiring[K]{
		synced: now,
		register: func() func() {
			return foreign.Follow(func(shard string, old, new T) {
				defer l.contain("event handler")
				eachOf(old, new, of(shard), l.Add)
			})
		},
		recent: func(add func(K)) {
			foreign.Recent(func(shard string, old, new T) { eachOf(old, new, of(shard), add) })
		},
		pages: func(yield func(int, []K) bool) {
			for _, shard := range foreign.Shards() {
				more := true
				page := func(after clusters.Key, n int) []T { return foreign.Page(shard, after, n) }
				walk(page, of(shard), func(objects int, keys []K) bool {
					more = yield(objects, keys)
					return more
				})
				if !more {
					return
				}
			}
		},
	})
}
