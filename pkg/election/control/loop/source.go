package loop

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// Source is where keys come from, other than a SharedIndexInformer (see Watch). All fields are optional.
type Source[K comparable] struct {
	// Name says what it is, in logs.
	Name string
	// Synced is closed when the source can be read. Run waits for it before it registers anything, and before the
	// first reconcile.
	Synced <-chan struct{}
	// Register begins to call the loop's Add with the keys of what changes. Run calls it once all sources are
	// synced, and calls remove before it returns: when remove has returned, nothing that Register has begun may
	// run. If it runs code of the controller on other goroutines, it defers the loop's Contain there.
	Register func() (remove func())
	// Recent calls add with the keys of the last changes before Run. They are reconciled before what Pages finds.
	Recent func(add func(K))
	// Pages reads all objects, page by page, for the sweep: it calls yield with the number of objects of each page
	// and their keys, until that returns false. A source without Pages is only followed.
	Pages func(yield func(objects int, keys []K) bool)
}

// On adds a source of keys. Call On before Run.
func (l *Loop[K]) On(s Source[K]) {
	l.wirings = append(l.wirings, wiring[K]{
		name: s.Name, synced: s.Synced,
		register: func() (func(), error) { return s.register(), nil },
		recent:   s.Recent,
		pages:    s.Pages,
	})
}

func (s Source[K]) register() (remove func()) {
	if s.Register == nil {
		return func() {}
	}
	return s.Register()
}

// wiring is a source as Run uses it.
type wiring[K comparable] struct {
	name string // for the log
	// synced is closed, or hasSynced returns true, when the source can be read. Both nil: at once.
	synced    <-chan struct{}
	hasSynced func() bool
	register  func() (remove func(), err error)
	recent    func(add func(K))                            // nil: none
	pages     func(yield func(objects int, keys []K) bool) // nil: it is only followed
}

const (
	// pollPeriod is how often a source is asked whether it is synced that does not tell. A leader's caches are
	// warm: it asks once.
	pollPeriod = 10 * time.Millisecond
	// remindAfter is after how long a source is told of that is not synced.
	remindAfter = 10 * time.Second
	// syncTimeout is after how long Run fails. What has not synced by then may never do so: the account must not
	// list it, or nobody has started it. A term would go on without its work, so another replica tries; the caches
	// belong to the process, and fill meanwhile.
	syncTimeout = 30 * time.Second
)

// await returns nil when a source is synced, or when ctx ends before. The error names a source that has not synced in
// time.
func (l *Loop[K]) await(ctx context.Context, w wiring[K]) error {
	if w.synced == nil && (w.hasSynced == nil || w.hasSynced()) {
		return nil
	}
	var poll <-chan time.Time
	if w.hasSynced != nil {
		ticker := time.NewTicker(pollPeriod)
		defer ticker.Stop()
		poll = ticker.C
	}
	reminder, deadline := time.NewTimer(remindAfter), time.NewTimer(syncTimeout)
	defer reminder.Stop()
	defer deadline.Stop()
	for {
		select {
		case <-w.synced:
			return nil
		case <-ctx.Done():
			return nil
		case <-poll:
			if w.hasSynced() {
				return nil
			}
		case <-reminder.C:
			klog.FromContext(ctx).Info("Still waiting for a cache to be synced: does it run? It must be started with the process", "cache", w.name, "for", remindAfter)
		case <-deadline.C:
			return fmt.Errorf("loop %s: %s has not synced within %v: start it with the process, and see in the log of its reflector why it cannot list", l.name, w.name, syncTimeout)
		}
	}
}
