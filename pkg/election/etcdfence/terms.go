package etcdfence

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/election/fence"
)

// rememberedTerms bounds how many leases are remembered. For others each write costs one more read.
const rememberedTerms = 1024

// longestMove bounds how long a write waits for the renewal of its Lease. Without waiting, all writes that are under
// way when the Lease is renewed would fail once and be tried again.
const longestMove = 100 * time.Millisecond

// terms remembers at which revision each Lease was last seen, and which term it showed. It may be stale: each write
// compares the revision in its own transaction.
type terms struct {
	mu        sync.Mutex
	seen      *lru.Cache // sightings by etcd key
	forgetful bool       // etcd went back: one revision may stand for two states
	// moving has the etcd keys of leases that this process is writing now: their revisions are about to change.
	moving map[string]chan struct{}
}

// sighting is the term that a Lease showed at a revision.
type sighting struct {
	term     fence.Token // see termOf
	revision int64
}

func newTerms() *terms {
	return &terms{seen: lru.New(rememberedTerms), moving: map[string]chan struct{}{}}
}

// termOf returns what tells the terms of one Lease apart.
func termOf(token fence.Token) fence.Token {
	return fence.Token{UID: token.UID, Holder: token.Holder, Epoch: token.Epoch}
}

// revision returns the revision at which the Lease at a key was last seen to show the token's term. 0: it was not.
func (t *terms) revision(key string, token fence.Token) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.seen.Get(key); ok && last.(sighting).term == termOf(token) {
		return last.(sighting).revision
	}
	return 0
}

// learn records what the Lease at a key shows at a revision, and returns its term.
func (t *terms) learn(key string, shown fence.Token, revision int64) fence.Token {
	shown = termOf(shown)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgetful {
		return shown
	}
	if last, ok := t.seen.Get(key); !ok || last.(sighting).revision < revision {
		t.seen.Add(key, sighting{shown, revision})
	}
	return shown
}

// move says that this process is writing the Lease at a key, until settled is called.
func (t *terms) move(key string) (settled func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moving[key] != nil {
		return func() {} // another write of it is under way and will settle
	}
	until := make(chan struct{})
	t.moving[key] = until
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.moving, key)
		close(until)
	}
}

// settle waits, at most for longestMove, while this process writes the Lease at a key.
func (t *terms) settle(ctx context.Context, key string) {
	t.mu.Lock()
	until := t.moving[key]
	t.mu.Unlock()
	if until == nil {
		return
	}
	bound := time.NewTimer(longestMove)
	defer bound.Stop()
	select {
	case <-until:
	case <-bound.C:
	case <-ctx.Done():
	}
}

// forget drops everything and stops remembering.
func (t *terms) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetful = true
	t.seen.Clear()
}
