package election

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

const (
	// safetyPeriod is the time between reads that would find what a watch, alive to all appearances, has missed.
	safetyPeriod = time.Minute
	// shortestFollowDelay is waited before a watch is begun again; it doubles with each failure in a row.
	shortestFollowDelay = 50 * time.Millisecond
)

// follower keeps the view up to date by a watch of the one Lease, on standbys and leaders alike. It never writes.
type follower struct {
	api          leaseAPI
	view         *view
	longestDelay time.Duration // between two attempts to watch

	doubt  chan struct{} // capacity 1: the view may be behind, read now
	missed chan struct{} // capacity 1: a safety read brought news that the watch should have brought
}

func newFollower(api leaseAPI, v *view, longestDelay time.Duration) *follower {
	return &follower{
		api: api, view: v, longestDelay: longestDelay,
		doubt: make(chan struct{}, 1), missed: make(chan struct{}, 1),
	}
}

// run follows the Lease until ctx ends.
func (f *follower) run(ctx context.Context) {
	var reads sync.WaitGroup
	defer reads.Wait()
	reads.Go(func() { f.readNowAndThen(ctx) })

	delay := shortestFollowDelay
	for {
		watched, err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if watched {
			delay = shortestFollowDelay
		}
		klog.FromContext(ctx).V(4).Info("Watching the Lease again", "after", delay, "err", err)
		sleep(ctx, delay)
		delay = min(2*delay, f.longestDelay)
	}
}

// distrust asks for a read, whatever the watch says.
func (f *follower) distrust() { signal(f.doubt) }

// follow reads the Lease and then watches it, until the watch ends. watched reports whether it ever began.
func (f *follower) follow(ctx context.Context) (watched bool, err error) {
	revision, _, err := f.read(ctx)
	if err != nil {
		return false, err
	}
	events, err := f.api.watch(ctx, revision)
	if err != nil {
		return false, err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-f.missed:
			return true, errors.New("the watch missed a change")
		case event, open := <-events.ResultChan():
			if !open {
				return true, errors.New("the watch ended")
			}
			if err := f.handle(event); err != nil {
				return true, err
			}
		}
	}
}

// handle takes one event of the watch into the view.
func (f *follower) handle(event watch.Event) error {
	lease, _ := event.Object.(*coordinationv1.Lease)
	switch event.Type {
	case watch.Error:
		return fmt.Errorf("watch the Lease: %w", apierrors.FromObject(event.Object))
	case watch.Added, watch.Modified:
		f.view.see(lease)
	case watch.Deleted:
		f.view.seeNone(lease.ResourceVersion)
	}
	return nil // a bookmark tells nothing about the Lease
}

// readNowAndThen reads the Lease once per safetyPeriod, and when in doubt, until ctx ends.
func (f *follower) readNowAndThen(ctx context.Context) {
	every := time.NewTicker(safetyPeriod)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.doubt:
			_, _, _ = f.read(ctx) // the watch may just be on its way
		case <-every.C:
			if _, news, err := f.read(ctx); err == nil && news {
				signal(f.missed)
			}
		}
	}
}

// read brings the view up to date and reports as of which revision, and whether that brought news.
func (f *follower) read(ctx context.Context) (revision string, news bool, err error) {
	list, err := f.api.read(ctx)
	if err != nil {
		return "", false, err
	}
	if len(list.Items) == 0 {
		return list.ResourceVersion, f.view.seeNone(list.ResourceVersion), nil
	}
	return list.ResourceVersion, f.view.see(&list.Items[0]), nil
}

// signal leaves a message in a channel of capacity 1, unless one is there already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
