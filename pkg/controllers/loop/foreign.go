package loop

import "github.com/regent-project/regent/pkg/clusters"

// WatchForeign is Watch for objects of other shards, whose keys are of clusters of this one. Run does not wait for
// them: another shard may be away for long, and its objects queue their keys when it is back.
func WatchForeign[K comparable, T clusters.Object](l *Loop[K], foreign *clusters.Foreign[T], keys func(shard string, obj T) []K) {
	of := func(shard string) func(T) []K { return func(obj T) []K { return keys(shard, obj) } }
	l.On(Source[K]{
		Register: func() func() {
			return foreign.Follow(func(shard string, old, new T) {
				defer l.Contain("event handler")
				eachOf(old, new, of(shard), l.Add)
			})
		},
		Recent: func(add func(K)) {
			foreign.Recent(func(shard string, old, new T) { eachOf(old, new, of(shard), l.own(add)) })
		},
		Pages: func(yield func(int, []K) bool) {
			for _, shard := range foreign.Shards() {
				page := func(after clusters.Key, n int) ([]T, clusters.Key) { return foreign.Page(shard, after, n) }
				if !l.walk(pages(page, of(shard)), yield) {
					return
				}
			}
		},
	})
}
