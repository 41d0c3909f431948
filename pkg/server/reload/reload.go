// Package reload keeps what was made of a file as new as the file, without a restart.
package reload

import (
	"context"
	"fmt"
	"os"
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

// Source says what to make of a file.
type Source[T any] struct {
	// Flag is the flag that names the file, for messages. File is the file's path.
	Flag, File string
	// Make makes a value of the file's content, or says what is wrong with it. It starts nothing. previous is the
	// value in use, the zero value at first.
	Make func(content []byte, previous T) (T, error)
	// Work does what a value needs done while it is in use. It returns when ctx has ended and nothing of it runs
	// any more. It may be nil.
	Work func(ctx context.Context, value T)
	// Reloaded is called after a changed file was taken, and Refused after one that is faulty, for metrics.
	Reloaded func(content []byte)
	Refused  func()
}

// Value is what was made of a file. A file that is faulty leaves it as it is.
//
//	New ──> in use ──(the file changes)──> retired ──(its last user has gone)──> its work is asked to end ──> joined
type Value[T any] struct {
	source Source[T]
	inUse  string // the content at the start

	mu      sync.Mutex
	current *generation[T]
}

// generation is the value of one content of the file, and who uses it.
type generation[T any] struct {
	value   T
	users   int
	retired bool
	// unused is closed when the generation is retired and nobody uses it.
	unused chan struct{}
}

// New reads the file. Use works from now on, and Run must be called for the value's work to be done.
func New[T any](source Source[T]) (*Value[T], error) {
	content, err := os.ReadFile(source.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Flag, err)
	}
	var none T
	made, err := source.Make(content, none)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", source.Flag, source.File, err)
	}
	return &Value[T]{source: source, inUse: string(content), current: newGeneration(made)}, nil
}

func newGeneration[T any](value T) *generation[T] {
	return &generation[T]{value: value, unused: make(chan struct{})}
}

// Use returns the value. It must not be used any more after release has been called, which the caller must do once.
func (v *Value[T]) Use() (value T, release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.current
	g.users++
	return g.value, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		g.users--
		g.checkUnused()
	}
}

// replace puts a generation in the place of the current one, and returns the latter.
func (v *Value[T]) replace(by *generation[T]) *generation[T] {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.current
	v.current, old.retired = by, true
	old.checkUnused()
	return old
}

// checkUnused is called with the lock held, after each change.
func (g *generation[T]) checkUnused() {
	if g.retired && g.users == 0 {
		close(g.unused)
	}
}

// Run does the value's work, and follows the file. It returns when ctx has ended, and all work with it. The value can
// still be used then, as far as it needs no work.
func (v *Value[T]) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	source, end := v.source, v.work(ctx, &running, v.current)
	log := klog.FromContext(ctx).WithValues("flag", source.Flag, "file", source.File)
	file := &Follower{
		InUse: v.inUse, AtOnce: true, // it has settled before it is looked at
		Read: func() (string, error) {
			content, err := os.ReadFile(source.File)
			return string(content), err
		},
		Use: func(ctx context.Context, content string) error {
			made, err := source.Make([]byte(content), v.current.value) // only this sets current
			if err != nil {
				return err
			}
			next := newGeneration(made)
			endNext := v.work(ctx, &running, next)
			retire(ctx, &running, v.replace(next), end)
			end = endNext
			return nil
		},
		Accepted: func(_ context.Context, content string) {
			source.Reloaded([]byte(content))
			log.Info("The file has changed, and is in force")
		},
		Refused: func(_ context.Context, err error, news bool) {
			source.Refused()
			if news {
				log.Error(err, "The file is faulty, and what was read before stays in force: correct it")
			}
		},
	}
	changed := make(chan struct{}, 1)
	running.Go(func() { v.watch(ctx, changed) })
	for settles(ctx, changed) {
		file.Look(ctx, time.Now())
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
