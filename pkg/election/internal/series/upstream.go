package series

import (
	"strings"
	"sync"
)

// Upstream reports whether the name is upstream's, so that a registry may have a metric of that name already.
func (f *Family) Upstream() bool { return !strings.HasPrefix(f.Name, "regent_") }

// component-base registers its metrics of leader election when client-go first asks it for them, which is when the
// first Elector is made, and panics if something else has their names.
var upstream struct {
	mu      sync.Mutex
	settled bool
	waiting []func()
}

// Settle says that whoever else counts under upstream's names has registered its metrics.
func Settle() {
	upstream.mu.Lock()
	defer upstream.mu.Unlock()
	upstream.settled = true
	for _, do := range upstream.waiting {
		do()
	}
	upstream.waiting = nil
}

// WhenSettled calls do when Settle is called, or at once if it was.
func WhenSettled(do func()) {
	upstream.mu.Lock()
	defer upstream.mu.Unlock()
	if upstream.settled {
		do()
		return
	}
	upstream.waiting = append(upstream.waiting, do)
}
