package loop

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// Source is where keys come from, other than a SharedIndexInformer (see Watch). All fields are optional.
type Source[K comparable] struct {
	// Name says what it is, in logs.
	Name string
	// Synced is closed when the source can be read. Run waits for it before it registers anything, and before the first reconcile.
	Synced <-chan struct{}
	// Register begins to call the loop's Add with the keys of what changes. Run calls it once all sources are synced, and calls remove
	// before it returns: when remove has returned, nothing that Register has begun may run. If it runs code of the controller on other
	// goroutines, it defers the loop's Contain there.
	Register func() (remove func())
	// Recent calls add with the keys of the last changes before Run. They are reconciled before what Pages finds.
	Recent func(add func(K))
	// Pages reads all objects, page by page, for the sweep: it calls yield with the number of objects of each page and their keys, until
	// that returns false. A source without Pages is only followed.
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
	// pollPeriod is how often a source is asked whether it is synced that does not tell. A leader's caches are warm: it asks once.
	pollPeriod = 10 * time.Millisecond
	// firstReminder is after how long a source is told of that is not synced. Each further pause is twice as long.
	firstReminder = 10 * time.Second
)

// await returns true when a source is synced, and false if ctx ends before.
func (l *Loop[K]) await(ctx context.Context, w wiring[K]) bool {
	if w.synced == nil && (w.hasSynced == nil || w.hasSynced()) {
		return true
	}
	var poll <-chan time.Time
	if w.hasSynced != nil {
		ticker := time.NewTicker(pollPeriod)
		defer ticker.Stop()
		poll = ticker.C
	}
	began, pause := time.Now(), firstReminder
	reminder := time.NewTimer(pause)
	defer reminder.Stop()
	for {
		select {
		case <-w.synced:
			return true
		case <-ctx.Done():
			return false
		case <-poll:
			if w.hasSynced() {
				return true
			}
		case <-reminder.C:
			klog.FromContext(ctx).Info("Still waiting for a cache to be synced: does it run? It must be started with the process", "cache", w.name, "for", time.Since(began).Round(time.Second))
			pause *= 2
			reminder.Reset(pause)
		}
	}
}
