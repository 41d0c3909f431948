package clusters

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Lister is what every client of a resource has, typed or not. L is its type of lists.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ListWatch lists and watches a resource in all logical clusters, for an Informer. The client's transport is a Transport.
func ListWatch[L runtime.Object](client Lister[L]) cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.List(With(ctx, Wildcard), opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(With(ctx, Wildcard), opts)
		},
	}
}

// source stands between a reflector and a list-watch, for two reasons.
//
// The reflector collects a streamed list (WatchList) in a store of its own that is keyed namespace/name, where equal
// names of two clusters collapse silently: source tells it not to stream.
//
// The reflector leaves a list behind when its context ends, and does not wait for a stopped watch to be closed: source
// lets the informer wait for both.
type source struct {
	cache.ListerWatcherWithContext

	mu     sync.Mutex
	closed bool
	lists  sync.WaitGroup
}

// IsWatchListSemanticsUnSupported is what client-go asks for before it streams a list.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

func (s *source) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), opts)
}

func (s *source) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), opts)
}

func (s *source) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if !s.enter() {
		return nil, context.Canceled
	}
	defer s.lists.Done()
	return s.ListerWatcherWithContext.ListWithContext(ctx, opts)
}

func (s *source) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return joinedWatch{w}, nil
}

func (s *source) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.lists.Add(1)
	return true
}

// close returns when no list is under way any more; later ones fail.
func (s *source) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.lists.Wait()
}

// joinedWatch stops only when its producer has ended, as watch.Interface asks of consumers.
type joinedWatch struct{ watch.Interface }

func (w joinedWatch) Stop() {
	w.Interface.Stop()
	for range w.ResultChan() { // until the producer closes it
	}
}

var _ interface {
	cache.ListerWatcher
	cache.ListerWatcherWithContext
} = (*source)(nil)
