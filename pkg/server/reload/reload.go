// Package reload keeps what was made of a file as new as the file, without a restart.
package reload

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
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
	seen   []byte // the content that was tried last, good or not. Only Run touches it.

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
	return &Value[T]{source: source, seen: content, current: newGeneration(made)}, nil
}

func newGeneration[T any](value T) *generation[T] {
	return &generation[T]{value: value, unused: make(chan struct{})}
}

// Use returns the value. It must not be used any more after done has been called, which the caller must do once.
func (v *Value[T]) Use() (value T, done func()) {
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

// load returns a generation of the file's content as it is now. It returns nil if the content has been tried before.
func (v *Value[T]) load() (*generation[T], error) {
	content, err := os.ReadFile(v.source.File)
	if err == nil && bytes.Equal(content, v.seen) {
		return nil, nil
	}
	var made T
	if err == nil {
		v.seen = content
		made, err = v.source.Make(content, v.current.value) // only Run, which calls this, sets current
	}
	if err != nil {
		v.source.Refused()
		return nil, err
	}
	v.source.Reloaded(content)
	return newGeneration(made), nil
}
