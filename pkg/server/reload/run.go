package reload

import (
	"context"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
)

const (
	// lookAgain is how soon a change is seen that the file system does not tell of.
	lookAgain = 10 * time.Second
	// settled is how long a file must be left alone before it is read. Editors empty a file first and fill it then.
	settled = 50 * time.Millisecond
)

// Run does the value's work, and follows the file. It returns when ctx has ended, and all work with it. The value can
// still be used then, as far as it needs no work.
func (v *Value[T]) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	changed := make(chan struct{}, 1)
	running.Go(func() { v.watch(ctx, changed) })
	end := v.work(ctx, &running, v.current)
	complaint := ""
	for settles(ctx, changed) {
		next, err := v.load()
		switch {
		case err != nil:
			if err.Error() != complaint {
				klog.FromContext(ctx).Error(err, "The file is faulty, and what was read before stays in force: correct it", "flag", v.source.Flag, "file", v.source.File)
			}
			complaint = err.Error()
		case next != nil:
			complaint = ""
			endNext := v.work(ctx, &running, next)
			retire(ctx, &running, v.replace(next), end)
			end = endNext
			klog.FromContext(ctx).Info("The file has changed, and is in force", "flag", v.source.Flag, "file", v.source.File)
		}
	}
}

// watch tells of changes of the file until ctx ends.
func (v *Value[T]) watch(ctx context.Context, changed chan<- struct{}) {
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	filesystem.WatchUntil(ctx, lookAgain, v.source.File, tell, func(err error) {
		klog.FromContext(ctx).V(4).Info("The file is looked at only now and then", "flag", v.source.Flag, "every", lookAgain, "err", err)
	})
}

// settles waits until the file has changed, and has been left alone for a moment. It returns false if ctx ends before.
func settles(ctx context.Context, changed <-chan struct{}) bool {
	var alone <-chan time.Time // nil until it has changed
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changed:
			alone = time.After(settled)
		case <-alone:
			return true
		}
	}
}

// work starts the work of a generation, and returns what asks it to end.
func (v *Value[T]) work(ctx context.Context, running *sync.WaitGroup, g *generation[T]) context.CancelFunc {
	ctx, end := context.WithCancel(ctx)
	if v.source.Work != nil {
		running.Go(func() { v.source.Work(ctx, g.value) })
	}
	return end
}

// retire asks the work of an old generation to end when its last user has gone, or the server stops.
func retire[T any](ctx context.Context, running *sync.WaitGroup, old *generation[T], end context.CancelFunc) {
	running.Go(func() {
		defer end()
		select {
		case <-ctx.Done():
		case <-old.unused:
		}
	})
}
