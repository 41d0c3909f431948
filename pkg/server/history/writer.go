package history

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/client-go/kubernetes"
)

// Writer writes the entries of one process. Terms of many ranges may begin at the same moment: the first of them that
// gets its turn writes for all that wait then, so that sixteen terms make one write or two, and not sixteen that are in
// each other's way. Its methods may be called at any time on any goroutine.
type Writer struct {
	book Book
	turn chan struct{}

	mu      sync.Mutex
	waiting []*waiter
}

// waiter is a term whose entry is not yet written. written is closed when it is.
type waiter struct {
	entry   Entry
	written chan struct{}
}

// NewWriter returns a Writer of a book.
func NewWriter(b Book) *Writer { return &Writer{book: b, turn: make(chan struct{}, 1)} }

// Add returns when an entry is written, by the clients of its term or by those of another term that began with it. It
// returns an error if ctx ends before, or if the clients of its own term could not.
func (w *Writer) Add(ctx context.Context, kube kubernetes.Interface, e Entry) error {
	own := w.wait(e)
	defer w.forget(own)
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-own.written:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until the entries of other ranges are written: %w", context.Cause(ctx))
	}
	all := w.all()
	if !slices.Contains(all, own) {
		return nil // it was written while it got its turn
	}
	entries := make([]Entry, len(all))
	for n, one := range all {
		entries[n] = one.entry
	}
	if err := w.book.Add(ctx, kube, entries...); err != nil {
		return err
	}
	w.forget(all...)
	for _, one := range all {
		close(one.written)
	}
	return nil
}

func (w *Writer) wait(e Entry) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := &waiter{entry: e, written: make(chan struct{})}
	w.waiting = append(w.waiting, own)
	return own
}

func (w *Writer) all() []*waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.waiting)
}

func (w *Writer) forget(these ...*waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(one *waiter) bool { return slices.Contains(these, one) })
}
