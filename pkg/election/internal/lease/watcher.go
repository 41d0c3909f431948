package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// safetyPeriod is the time between reads that find what a watch has missed, although it seems to work.
const safetyPeriod = time.Minute

// Watcher keeps a View up to date by a watch of the one Lease, on standbys and leaders. It never writes.
type Watcher struct {
	api     API
	view    *View
	longest time.Duration // between two attempts to watch

	doubt  chan struct{} // capacity 1: the view may be out of date, read now
	missed chan struct{} // capacity 1: a safety read found what the watch had missed

	unread unread
}

// NewWatcher returns a Watcher that pauses for at most longest between two attempts to watch.
func NewWatcher(api API, v *View, longest time.Duration) *Watcher {
	return &Watcher{
		api: api, view: v, longest: longest,
		doubt: make(chan struct{}, 1), missed: make(chan struct{}, 1),
	}
}

// NewLifeWatcher returns a Watcher of a Lease that stands for the life of a process.
func NewLifeWatcher(api API, v *View, longest time.Duration) *Watcher {
	w := NewWatcher(api, v, longest)
	w.unread.life = api.Name
	return w
}

// Run watches the Lease until ctx ends. It returns when everything that it started has ended.
func (w *Watcher) Run(ctx context.Context) {
	var reads sync.WaitGroup
	defer reads.Wait()
	reads.Go(func() { w.readNowAndThen(ctx) })

	pause := NewBackoff(w.longest)
	for {
		began := time.Now()
		watched, err := w.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		// one that ends at once would be begun again at once, for ever
		if watched && time.Since(began) >= w.longest {
			pause = NewBackoff(w.longest)
		}
		delay := pause.Next()
		klog.FromContext(ctx).V(4).Info("Watching the Lease again", "after", delay, "err", err)
		Sleep(ctx, delay)
	}
}

// Distrust asks for a read soon, whatever the watch says. It does not wait for the read.
func (w *Watcher) Distrust() { signal(w.doubt) }

// Fault says why the Lease cannot be read or watched, as people were told in the log; empty if it can. Any goroutine
// may call it.
func (w *Watcher) Fault() string { return w.unread.get() }

// Read brings the View up to date by a consistent read.
func (w *Watcher) Read(ctx context.Context) error {
	_, _, err := w.read(ctx)
	return err
}

// watch reads the Lease, and watches it until the watch ends. watched reports whether the watch began.
func (w *Watcher) watch(ctx context.Context) (watched bool, err error) {
	logger, began := klog.FromContext(ctx), time.Now()
	before, _ := w.view.Latest()
	revision, _, err := w.read(ctx)
	read := err == nil
	var events watch.Interface
	if read {
		events, err = w.api.watch(ctx, revision)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		w.unread.failed(logger, began, err, read, before.IsKnown())
		return false, err
	case err != nil:
		return false, err
	}
	w.unread.succeeded(logger)
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-w.missed:
			return true, errors.New("the watch missed a change")
		case event, open := <-events.ResultChan():
			if !open {
				return true, errors.New("the watch ended")
			}
			if err := w.handle(event); err != nil {
				return true, err
			}
		}
	}
}

// handle records one event of the watch in the View.
func (w *Watcher) handle(event watch.Event) error {
	lease, _ := event.Object.(*coordinationv1.Lease)
	switch event.Type {
	case watch.Error:
		return fmt.Errorf("watch the Lease: %w", apierrors.FromObject(event.Object))
	case watch.Added, watch.Modified:
		w.view.See(lease)
	case watch.Deleted:
		w.view.take(nil, lease.ResourceVersion)
	}
	return nil // a bookmark says nothing about the Lease
}

// readNowAndThen reads the Lease once per safetyPeriod, and when asked by Distrust, until ctx ends.
func (w *Watcher) readNowAndThen(ctx context.Context) {
	every := time.NewTicker(safetyPeriod)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.doubt:
			_ = w.Read(ctx) // news here is no fault of the watch: its event may be on the way
		case <-every.C:
			if _, news, err := w.read(ctx); err == nil && news {
				signal(w.missed)
			}
		}
	}
}

// read brings the View up to date. It returns the revision of the read, and whether the read brought news.
func (w *Watcher) read(ctx context.Context) (revision string, news bool, err error) {
	known, _ := w.view.Latest()
	list, err := w.api.Read(ctx)
	if err != nil {
		return "", false, err
	}
	return list.ResourceVersion, w.view.seeRead(list, known.Revision), nil
}

// signal leaves a message in a channel of capacity 1, unless there is one already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
