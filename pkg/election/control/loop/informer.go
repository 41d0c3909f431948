package loop

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Watch makes every change of an informer's object queue the keys of its old and its new state, and the sweep the keys
// of all objects, the newest first. Run waits until the informer is synced, and removes the handler before it returns.
// Call Watch before Run.
//
// The informer belongs to the process: start it before the election, and end it after. A loop that is made for a term,
// and the next, only adds and removes its handler. Objects of another type than T end the loop with an error. What an
// informer with a resync period repeats is queued as if the sweep had found it: nobody waits for it.
func Watch[K comparable, T any](l *Loop[K], inf cache.SharedIndexInformer, keys func(T) []K) {
	l.wirings = append(l.wirings, wiring[K]{
		name:      "informer of " + reflect.TypeFor[T]().String(),
		hasSynced: inf.HasSynced,
		register:  func() (func(), error) { return (&handler[K, T]{l: l, keys: keys}).register(inf) },
		pages: func(yield func(int, []K) bool) {
			for page := range slices.Chunk(newestFirst(inf.GetStore().List()), pageSize) {
				var found []K
				for _, obj := range page {
					found = append(found, keys(as[T](obj))...)
				}
				if !yield(len(page), found) {
					return
				}
			}
		},
	})
}

// handler is the event handler of a loop on an informer, for a term.
type handler[K comparable, T any] struct {
	l    *Loop[K]
	keys func(T) []K

	mu      sync.Mutex
	removed bool
}

func (h *handler[K, T]) register(inf cache.SharedIndexInformer) (remove func(), err error) {
	registration, err := inf.AddEventHandler(h)
	if err != nil {
		return nil, fmt.Errorf("cannot follow the %T of %v, which must run longer than the election: %w", inf, reflect.TypeFor[T](), err)
	}
	return func() {
		h.mu.Lock()
		h.removed = true // from here on no key is computed
		h.mu.Unlock()
		// Its error says that the handler is not of this informer. It is.
		_ = inf.RemoveEventHandler(registration)
		// Since v0.37 client-go tells when the handler's goroutines have ended.
		if r, ok := registration.(interface{ ShutdownChan() <-chan struct{} }); ok {
			<-r.ShutdownChan()
		}
	}, nil
}

// OnAdd implements cache.ResourceEventHandler. The objects that exist when the handler is added are the sweep's.
func (h *handler[K, T]) OnAdd(obj any, isInInitialList bool) {
	if !isInInitialList {
		h.handle(h.l.Add, obj)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *handler[K, T]) OnUpdate(old, obj any) {
	if isResync(old, obj) {
		h.handle(h.l.addNeeded, obj)
		return
	}
	h.handle(h.l.Add, old, obj)
}

// OnDelete implements cache.ResourceEventHandler.
func (h *handler[K, T]) OnDelete(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if obj != nil {
		h.handle(h.l.Add, obj)
	}
}

// handle calls add with the keys of objects.
func (h *handler[K, T]) handle(add func(K), objs ...any) {
	defer h.l.Contain("event handler")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed {
		return
	}
	for _, obj := range objs {
		for _, k := range h.keys(as[T](obj)) {
			add(k)
		}
	}
}

// as returns an object as a T, or panics.
func as[T any](obj any) T {
	t, ok := obj.(T)
	if !ok {
		panic(fmt.Errorf("the informer has a %T where the loop expects a %v: give Watch a function of the informer's type", obj, reflect.TypeFor[T]()))
	}
	return t
}

// isResync reports whether an informer repeats an object that has not changed.
func isResync(old, obj any) bool {
	a, ok := old.(metav1.Object)
	b, is := obj.(metav1.Object)
	return ok && is && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// newest is how many of the objects the sweep looks at first, because they have changed last: users may wait for those.
const newest = 1024

// newestFirst reorders a list of objects so that the newest come first, in the order of their age, as far as
// resourceVersions tell.
func newestFirst(objs []any) []any {
	type aged struct {
		obj     any
		version uint64
	}
	all, versions := make([]aged, len(objs)), make([]uint64, len(objs))
	for n, obj := range objs {
		versions[n] = versionOf(obj)
		all[n] = aged{obj, versions[n]}
	}
	slices.Sort(versions)
	var least uint64
	if len(objs) > newest {
		least = versions[len(objs)-newest]
	}
	// To order all of them would take a leader with many objects too long.
	front := 0
	for n := range all {
		if all[n].version >= least && front < newest {
			all[front], all[n] = all[n], all[front]
			front++
		}
	}
	slices.SortStableFunc(all[:front], func(a, b aged) int { return cmp.Compare(b.version, a.version) })
	for n, one := range all {
		objs[n] = one.obj
	}
	return objs
}

// versionOf returns an object's resourceVersion as a number. It is 0 if it is none.
func versionOf(obj any) uint64 {
	o, ok := obj.(metav1.Object)
	if !ok {
		return 0
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

var _ cache.ResourceEventHandler = (*handler[int, int])(nil)
