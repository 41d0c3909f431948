package clusters

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Lister is implemented by every client of a resource, typed or not. L is the type of its lists.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ListWatch lists and watches a resource in all logical clusters, for an Informer. The client's transport must be a
// Transport.
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
// The reflector collects a streamed list (WatchList) in a store keyed by namespace and name. There, objects with equal
// names in two clusters silently replace each other. source tells the reflector not to stream.
//
// When its context ends, the reflector abandons a list that is under way, and does not wait until a stopped watch is
// closed. source lets the informer wait for both.
type source struct {
	cache.ListerWatcherWithContext

	mu     sync.Mutex
	closed bool
	lists  sync.WaitGroup
}

// IsWatchListSemanticsUnSupported tells client-go not to stream lists.
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

// close waits for lists that are under way and makes later ones fail.
func (s *source) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.lists.Wait()
}

// joinedWatch is a watch whose Stop waits until the producer has ended.
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
