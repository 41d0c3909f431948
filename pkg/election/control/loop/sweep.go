package loop

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

const (
	// pageSize is how many objects the sweep reads at a time.
	pageSize = 64
	// The sweep pauses for pauseFactor times as long as it has worked, each time that it has worked for sweepSlice:
	// requests that users wait for need the CPU now, at the beginning of a term most of all.
	sweepSlice  = time.Millisecond
	pauseFactor = 9
	// toldSweep is how long a sweep must have taken to be told in the log.
	toldSweep = time.Second
)

// sweep is the pass over all objects with which Run begins: whatever the predecessor has left undone is found (I8).
type sweep struct {
	began   time.Time
	objects atomic.Int64 // that were looked at
	keys    atomic.Int64 // that were queued
	walked  atomic.Bool  // all objects were looked at
	ended   sync.Once
}

// sweepAll queues what has changed last, as fresh keys, and then all other keys that need something, as swept ones.
func (l *Loop[K]) sweepAll(ctx context.Context) {
	defer l.Contain("sweep")
	l.sweep.began = time.Now()
	for _, w := range l.wirings {
		if w.recent != nil {
			w.recent(func(k K) {
				if l.needed(k) {
					l.Add(k)
				}
			})
		}
	}
	for _, w := range l.wirings {
		if w.pages != nil && !l.walk(ctx, w.pages) {
			return
		}
	}
	l.sweep.walked.Store(true)
	l.tellSweep(ctx)
}

// walk returns false if ctx ends.
func (l *Loop[K]) walk(ctx context.Context, pages func(func(objects int, keys []K) bool)) bool {
	since := time.Now()
	pages(func(objects int, keys []K) bool {
		for _, k := range keys {
			l.addNeeded(k)
		}
		l.sweep.objects.Add(int64(objects))
		if worked := time.Since(since); worked >= sweepSlice {
			timer := time.NewTimer(pauseFactor * worked)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			since = time.Now()
		}
		return ctx.Err() == nil
	})
	return ctx.Err() == nil
}

func (l *Loop[K]) needed(k K) bool { return l.needs == nil || l.needs(k) }

// addNeeded queues a key that needs something in the lane of the sweep.
func (l *Loop[K]) addNeeded(k K) {
	if l.needed(k) {
		l.addSwept(k)
	}
}

// addSwept queues a key in the lane of the sweep.
func (l *Loop[K]) addSwept(k K) {
	l.sweep.keys.Add(1)
	l.lanes.want(k, swept)
	l.mu.Lock()
	queue := l.queue
	l.mu.Unlock()
	if queue != nil {
		queue.Add(k)
	}
}

// tellSweep logs the end of the sweep: all objects were looked at, and all keys that it has found were reconciled once.
func (l *Loop[K]) tellSweep(ctx context.Context) {
	if !l.sweep.walked.Load() {
		return
	}
	if pending, _ := l.lanes.progress(); pending[swept] > 0 {
		return
	}
	l.sweep.ended.Do(func() {
		if took := time.Since(l.sweep.began); took >= toldSweep {
			klog.FromContext(ctx).Info("The sweep has ended: all objects were looked at", "objects", l.sweep.objects.Load(), "keys", l.sweep.keys.Load(), "took", took.Round(time.Millisecond))
		}
	})
}
