package clusters

import (
	"maps"
	"slices"
	"sync"
)

// Foreign is a cache of one resource of other shards: an Informer for each shard. Shards come and go. Objects of
// different shards are kept apart, also if their keys are the same, because a shard must not be able to replace another
// one's.
//
// All methods may be called at any time on any goroutine.
type Foreign[T Object] struct {
	mu        sync.Mutex
	informers map[string]*Informer[T]
	followers map[*follower[T]]struct{}
}

// ForeignHandler is a Handler of objects of other shards.
type ForeignHandler[T Object] func(shard string, old, new T)

type follower[T Object] struct {
	handler ForeignHandler[T]
	removes map[string]func() // by shard
}

// NewForeign returns a cache without shards.
func NewForeign[T Object]() *Foreign[T] {
	return &Foreign[T]{informers: map[string]*Informer[T]{}, followers: map[*follower[T]]struct{}{}}
}

// Add adds the informer of a shard, which the caller runs, until remove is called. Followers learn of all objects that
// it has and gets; they do not learn that the shard goes, because its objects live on. There must be no informer of
// that shard yet.
func (f *Foreign[T]) Add(shard string, inf *Informer[T]) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.informers[shard] = inf
	for s := range f.followers {
		s.removes[shard] = inf.AddHandler(s.of(shard))
	}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		delete(f.informers, shard)
		var removes []func()
		for s := range f.followers {
			removes = append(removes, s.removes[shard])
			delete(s.removes, shard)
		}
		f.mu.Unlock()
		for _, remove := range removes { // without the lock: a handler that is running may ask for objects
			remove()
		}
	})
}

// Follow calls h with each change from now on, and with the objects of shards that are added from now on, until remove
// is called, as Informer.Follow does. Calls for one shard come one after the other. Those for different shards do not
// wait for each other.
func (f *Foreign[T]) Follow(h ForeignHandler[T]) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &follower[T]{handler: h, removes: map[string]func(){}}
	for shard, inf := range f.informers {
		s.removes[shard] = inf.Follow(Range{}, s.of(shard))
	}
	f.followers[s] = struct{}{}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		delete(f.followers, s)
		removes := slices.Collect(maps.Values(s.removes))
		f.mu.Unlock()
		for _, remove := range removes {
			remove()
		}
	})
}

func (s *follower[T]) of(shard string) Handler[T] {
	return func(old, new T) { s.handler(shard, old, new) }
}

// Get returns the object of a shard with key k, and false if there is none or the shard is not known.
func (f *Foreign[T]) Get(shard string, k Key) (T, bool) {
	if inf, ok := f.informer(shard); ok {
		return inf.Get(k)
	}
	var none T
	return none, false
}

// Page returns up to n objects of a shard, as Informer.Page does.
func (f *Foreign[T]) Page(shard string, after Key, n int) (page []T, next Key) {
	if inf, ok := f.informer(shard); ok {
		return inf.Page(Range{}, after, n)
	}
	return nil, Key{}
}

// Recent calls visit with the last changes of each shard, as Informer.Recent does.
func (f *Foreign[T]) Recent(visit ForeignHandler[T]) {
	for _, shard := range f.Shards() {
		if inf, ok := f.informer(shard); ok {
			inf.Recent(Range{}, func(old, new T) { visit(shard, old, new) })
		}
	}
}

// Shards returns the names of the shards, in order.
func (f *Foreign[T]) Shards() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.informers))
}

func (f *Foreign[T]) informer(shard string) (*Informer[T], bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inf, ok := f.informers[shard]
	return inf, ok
}
