package election

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// owner is what a holder has made to stand for its life: an object without which nobody holds the lease.
type owner struct {
	name string
	uid  types.UID
	// holder is the holder that the object must have, in mode by-presence; empty: it may have any.
	holder string
}

// ownerOfHolder returns the Lease that stands for the life of the lease's holder. There is none if this process holds
// the lease, if its mode needs none, or if the owner is not a Lease. In that last case the garbage collector deletes
// the election's Lease with its owner.
func (e *Elector) ownerOfHolder(seen lease.Observation) (_ owner, some bool) {
	life := seen.Life()
	switch {
	case e.identities.ours(seen.Holder()), life.Name == "":
		return owner{}, false
	case seen.IsByPresence():
		return owner{name: life.Name, uid: life.UID, holder: seen.Holder()}, true
	default:
		return owner{name: life.Name, uid: life.UID}, !seen.Expires()
	}
}

// isGone reports whether what was seen of the Lease that stands for the holder's life says that it does so no more. A
// deletion that waits for finalizers counts: the garbage collector's finalizers may wait for a leader.
func (o owner) isGone(seen lease.Observation) bool {
	switch {
	case !seen.IsKnown():
		return false
	case seen.Lease == nil, seen.Lease.UID != o.uid, seen.Lease.DeletionTimestamp != nil:
		return true
	default:
		return o.holder != "" && seen.Holder() != o.holder
	}
}

// watchOwner watches, until ctx ends, the Lease that stands for the life of the lease's current holder, and reports to
// e.peer when it does so no more.
func (e *Elector) watchOwner(ctx context.Context) {
	whileShown(ctx, e.view, e.ownerOfHolder, func(ctx context.Context, of owner, some bool) {
		if !some {
			return
		}
		view, release := e.lives.watch(ctx, of.name)
		defer release()
		e.peer.follow(of, view)
		for ctx.Err() == nil {
			seen, changed := view.Latest()
			if of.isGone(seen) {
				e.peer.setGone(of)
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	})
}

// lives watches the Leases that stand for the lives of other processes. The Electors of a process that share a Presence
// share this, too: each Lease has one watcher, however many of them need it.
type lives struct {
	// watcherOf returns a view of the Lease of that name, and its watcher.
	watcherOf func(name string) (*lease.View, *lease.Watcher)

	mu      sync.Mutex
	watched map[string]*watchedLife
}

// watchedLife is one Lease that is watched.
type watchedLife struct {
	view  *lease.View
	users int
	// end ends the watcher, and returns when it has ended.
	end func()
}

// watch returns a view of the Lease of that name, which is up to date until release is called. The last call of it for
// a Lease returns when its watcher has ended.
func (l *lives) watch(ctx context.Context, name string) (_ *lease.View, release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watched[name]
	if w == nil {
		w = l.begin(ctx, name)
		if l.watched == nil {
			l.watched = map[string]*watchedLife{}
		}
		l.watched[name] = w
	}
	w.users++
	return w.view, func() {
		l.mu.Lock()
		w.users--
		last := w.users == 0
		if last {
			delete(l.watched, name)
		}
		l.mu.Unlock()
		if last {
			w.end()
		}
	}
}

// begin starts the watcher of the Lease of that name. It does not end with ctx: others may need it longer.
func (l *lives) begin(ctx context.Context, name string) *watchedLife {
	view, watcher := l.watcherOf(name)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { watcher.Run(ctx) })
	return &watchedLife{view: view, end: func() {
		cancel()
		running.Wait()
	}}
}
