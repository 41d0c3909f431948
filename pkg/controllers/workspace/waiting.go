package workspace

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/clusters"
)

// waiting are the Workspaces that wait for a shard, or with "" for any that fits.
type waiting struct {
	mu   sync.Mutex
	keys map[string]map[clusters.Key]bool
}

func (w *waiting) add(shard string, key clusters.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[string]map[clusters.Key]bool{}
	}
	if w.keys[shard] == nil {
		w.keys[shard] = map[clusters.Key]bool{}
	}
	w.keys[shard][key] = true
}

// take returns those that wait for a shard, and forgets them.
func (w *waiting) take(shard string) []clusters.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := slices.Collect(maps.Keys(w.keys[shard]))
	delete(w.keys, shard)
	return keys
}

// overdueAfter is how long another shard may take to begin before its workspaces tell of it. Most begin within
// milliseconds, and to tell costs a write.
const overdueAfter = 5 * time.Second

// waitClock knows since when other shards are awaited, by the Workspace.
type waitClock struct {
	mu    sync.Mutex
	since map[clusters.Key]time.Time
}

// forget records that nothing is awaited.
func (a *waitClock) forget(key clusters.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, key)
}

// overdue records that a shard is awaited, and reports whether it has been for long.
func (a *waitClock) overdue(key clusters.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, ok := a.since[key]
	if !ok {
		if a.since == nil {
			a.since = map[clusters.Key]time.Time{}
		}
		since = time.Now()
		a.since[key] = since
	}
	return time.Since(since) >= overdueAfter
}
