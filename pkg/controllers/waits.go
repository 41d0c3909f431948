package controllers

import (
	"sync"
	"time"
)

// Waits knows since when something is awaited, by key. The zero value is ready for use. All methods may be called at
// any time on any goroutine.
type Waits[K comparable] struct {
	mu    sync.Mutex
	since map[K]time.Time
}

// Forget records that nothing is awaited for a key.
func (w *Waits[K]) Forget(key K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, key)
}

// Overdue records that something is awaited for a key, and reports whether it has been for so long.
func (w *Waits[K]) Overdue(key K, after time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, ok := w.since[key]
	if !ok {
		if w.since == nil {
			w.since = map[K]time.Time{}
		}
		since = time.Now()
		w.since[key] = since
	}
	return time.Since(since) >= after
}
