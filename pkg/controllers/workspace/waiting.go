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

// overdueAfter is how long another shard may take to begin before its workspaces tell of it, and for how long a
// LogicalCluster may be missing before it is looked for. Most begin within milliseconds, and to tell costs a write. A
// LogicalCluster comes and goes in one transaction with its Workspace, and one of the two events is first.
const overdueAfter = 5 * time.Second
